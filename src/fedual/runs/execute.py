"""Running an experiment into a folder, so that it can be watched, stopped and continued."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fedual import checkpoint
from fedual.arrays import precision
from fedual.config import Config, Experiment, build
from fedual.engine import iterate
from fedual.engine.bind import bind
from fedual.engine.run import device_count
from fedual.files import write_text
from fedual.metrics import Evaluation
from fedual.runs.folder import RunFolder
from fedual.runs.tables import client_table, evaluations, summarize
from fedual.solution import Solution

__all__ = ["Outcome", "resume", "run"]

Callback = Callable[[Solution], Any]


@dataclass(frozen=True)
class Outcome:
    """What `run` and `resume` return.

    Attributes:
        solution: the last one.
        evaluated: global and local models on the held-out rows.
        folder: where everything was written.
        stopped_by: the name of the signal that ended the run early, else None.
        began_at: the rounds that were done before this call.
    """

    solution: Solution
    evaluated: tuple[Evaluation, ...]
    folder: RunFolder
    stopped_by: str | None
    began_at: int = 0


def run(experiment: Experiment, out: str | Path, force: bool = False, callbacks: Iterable[Callback] = ()) -> Outcome:
    """Run an experiment from the start.

    SIGINT (Ctrl-C) or SIGTERM ends the run after the present chunk of rounds, with everything written; a second SIGINT
    at once, as of the last chunk.

    Args:
        experiment: from `fedual.config.build`.
        out: the folder for the results.
        force: replace an earlier run in that folder.
        callbacks: each is called with the solution so far every `progress_every` rounds; no number depends on them.

    Raises:
        FileExistsError: the folder is not empty and `force` is not given.
        ValueError: as `fedual.solve`.
    """
    RunFolder.check_free(out, force)
    _check(experiment)
    folder = RunFolder.create(out, force)
    write_text(folder / "config.toml", experiment.config.to_toml())
    return _advance(experiment, folder, None, callbacks)


def resume(
    path: str | Path,
    rounds: int | None = None,
    callbacks: Iterable[Callback] = (),
    tell: Callable[[str], Any] = lambda text: None,
) -> Outcome:
    """Go on with a run from its last checkpoint; from the start where it was stopped before the first.

    Args:
        path: the folder of the run.
        rounds: a new last round, at least as many as are done; that of `config.toml` by default.
        callbacks: as for `run`.
        tell: is given one sentence on where the run goes on and whether that is bit-identical.

    Raises:
        ValueError: the checkpoint does not belong to this configuration, data or version; the difference is named.
        FileNotFoundError: the folder holds no run.
    """
    folder = RunFolder.open(path)
    config = Config.load(folder / "config.toml")
    if rounds is not None:
        config = config.model_copy(update={"stop": config.stop.model_copy(update={"rounds": rounds})})
    experiment = build(config)
    if not (folder / "checkpoint.safetensors").exists():
        tell("no checkpoint had been written yet: the run starts at round 1.")
        return _advance(experiment, folder, None, callbacks)
    restored = checkpoint.restore(
        folder / "checkpoint.safetensors",
        experiment.problem,
        experiment.algorithm,
        experiment.schedule,
        experiment.participation,
        config.run.seed,
        config.run.clients_at_once,
    )
    solution, done = restored.solution, restored.solution.history.rounds
    if rounds is not None and rounds < done:
        raise ValueError(f"rounds = {rounds}: the run has done {done} rounds already; they cannot be undone.")
    write_text(folder / "config.toml", experiment.config.to_toml())
    if solution.status != "round limit" or done >= config.stop.rounds:
        tell(f"the run is finished after round {done} ({solution.status}): 0 further rounds were done.")
        evaluated = _finish(experiment, folder, solution, checkpoint.data_digests(experiment.problem.clients), None)
        return Outcome(solution, evaluated, folder, None, done)
    tell(f"the run goes on after round {done}; {restored.layout}.")
    return _advance(experiment, folder, solution, callbacks)


def _check(experiment: Experiment) -> None:
    """Raise what the engine would, so that a run which cannot start does not replace an earlier one."""
    e = experiment
    with precision(e.problem.dtype):
        devices, at_once = device_count(e.problem), e.config.run.clients_at_once
        bind(e.problem, e.algorithm, e.schedule, e.participation, at_once, devices)


def _advance(
    experiment: Experiment, folder: RunFolder, start: Solution | None, callbacks: Iterable[Callback]
) -> Outcome:
    config, callbacks = experiment.config, tuple(callbacks)
    output, stop = config.output, config.stop
    digests = checkpoint.data_digests(experiment.problem.clients)
    rows = _ClientRows(experiment, folder, 0 if start is None else start.history.rounds)
    chunk = min(c for c in (output.progress_every, output.checkpoint_every, output.clients_every) if c > 0)
    solutions = iterate(
        experiment.problem,
        experiment.algorithm,
        stop.rounds,
        experiment.schedule,
        experiment.participation,
        config.run.seed,
        tolerance=stop.tolerance,
        relative_tolerance=stop.relative_tolerance,
        evaluate_every=config.run.evaluate_every,
        clients_at_once=config.run.clients_at_once,
        state=None if start is None else start.state,
        chunk_rounds=chunk,
    )
    began_at = saved = 0 if start is None else start.history.rounds
    saved_time, solution, stopped_by = time.monotonic(), start, None
    with _deferred_signals() as received:
        try:
            for solution in solutions:
                rows.record(solution)
                done = solution.history.rounds
                # The next chunk could otherwise end more than an interval after the last checkpoint.
                due = done - saved + chunk > output.checkpoint_every
                if due or time.monotonic() - saved_time >= output.checkpoint_seconds:
                    _save(experiment, folder, solution, digests, rows)
                    saved, saved_time = done, time.monotonic()
                for callback in callbacks:
                    callback(solution)
                if received:
                    stopped_by = received[0]
                    break
        except KeyboardInterrupt:
            if solution is None:
                raise
            stopped_by = received[0]
        assert solution is not None, "iterate yields at least once"
        evaluated = _finish(experiment, folder, solution, digests, rows)
    return Outcome(solution, evaluated, folder, stopped_by, began_at)


def _save(
    experiment: Experiment, folder: RunFolder, solution: Solution, digests: Any, rows: _ClientRows | None
) -> None:
    """What a resumed run needs, and what people look at meanwhile."""
    checkpoint.save(folder / "checkpoint.safetensors", solution, digests)
    folder.write_table("history.csv", solution.history.to_polars())
    transform, columns = experiment.transform, experiment.problem.clients.columns
    folder.write_arrays(
        "model.safetensors",
        {"theta": solution.theta},
        loss=experiment.config.loss,
        columns=columns,
        transform=None if transform is None else transform.to_dict(),
    )
    if rows is not None:
        rows.write()


def _finish(
    experiment: Experiment, folder: RunFolder, solution: Solution, digests: Any, rows: _ClientRows | None
) -> tuple[Evaluation, ...]:
    _save(experiment, folder, solution, digests, rows)
    evaluated = evaluations(experiment, solution)
    names = experiment.problem.clients.names
    folder.write_arrays("clients.safetensors", {"thetas": solution.thetas, "duals": solution.duals}, clients=names)
    folder.write_table("clients.csv", client_table(solution, evaluated))
    folder.write_json("summary.json", summarize(experiment, solution, evaluated))
    return evaluated


class _ClientRows:
    """Rows per client and round for `rounds.csv`, every `clients_every` rounds."""

    def __init__(self, experiment: Experiment, folder: RunFolder, done: int) -> None:
        self.experiment, self.folder = experiment, folder
        self.every = experiment.config.output.clients_every
        self.tables: list[pl.DataFrame] = []
        if self.every and done and (folder / "rounds.csv").exists():
            earlier = pl.read_csv(folder / "rounds.csv", schema_overrides={"client": pl.String})
            self.tables = [earlier.filter(pl.col("round") <= done)]
        self.recorded = max(self.tables[0]["round"].to_list(), default=0) if self.tables else 0

    def record(self, solution: Solution) -> None:
        done = solution.history.rounds
        if not self.every or done // self.every == self.recorded // self.every:
            return
        table = client_table(solution, evaluations(self.experiment, solution))
        self.tables.append(table.insert_column(0, pl.lit(done, dtype=pl.Int64).alias("round")))
        self.recorded = done

    def write(self) -> None:
        if self.tables:
            self.folder.write_table("rounds.csv", pl.concat(self.tables, how="vertical_relaxed"))


@contextmanager
def _deferred_signals() -> Iterator[list[str]]:
    """Collects the first SIGINT or SIGTERM instead of dying of it; a second SIGINT raises KeyboardInterrupt."""
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may set handlers
        return

    def note(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
