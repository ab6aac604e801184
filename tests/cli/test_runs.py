"""A run's folder: complete, repeatable, never overwritten unasked, and safe against being stopped at any moment."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedual as fd
from fedual import checkpoint, files, runs
from fedual.config import Config, build


def go(experiment_file, out, *overrides, **options):
    return runs.run(build(Config.load(experiment_file, overrides)), out, **options)


def uninterrupted(experiment_file, rounds=10):
    e = build(Config.load(experiment_file))
    return fd.solve(e.problem, e.algorithm, rounds, e.schedule, seed=0)


def assert_same_files(a, b):
    """All numbers but the wall clock, bit for bit."""
    one, other = fd.load(a), fd.load(b)
    for column in set(one.history) - {"seconds"}:
        np.testing.assert_array_equal(one.history[column], other.history[column], err_msg=column)
    for name in ("theta", "thetas", "duals"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("clients.csv", "rounds.csv"):
        assert (Path(a) / name).read_text() == (Path(b) / name).read_text()


def test_the_folder_tells_the_whole_run(experiment_file, tmp_path):
    outcome = go(experiment_file, tmp_path / "run")
    expected = uninterrupted(experiment_file)
    loaded = fd.load(tmp_path / "run")
    assert (loaded.status, loaded.converged) == ("round limit", False)
    for name in ("theta", "thetas", "duals"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(expected, name))
    for column in set(expected.history) - {"seconds"}:
        np.testing.assert_array_equal(loaded.history[column], expected.history[column])
        assert loaded.history[column].dtype == expected.history[column].dtype
    table, problem = loaded.clients, outcome.solution.problem
    assert table["client"].to_list() == ["north", "south", "east"]
    assert table["rows"].to_list() == [24, 16, 1]
    gradients = problem.local_gradients(expected.theta)
    np.testing.assert_allclose(table["gradient_norm"], np.sqrt((gradients**2).sum(axis=1)), rtol=1e-14)
    np.testing.assert_allclose(table["distance"], np.linalg.norm(expected.thetas - expected.theta, axis=1), rtol=1e-14)
    summary = loaded.summary
    assert summary["objective"] == pytest.approx(problem.value(expected.theta), rel=1e-12)
    assert summary["uplinks"] == 3 * summary["communications"]


def test_the_written_configuration_repeats_the_run(experiment_file, tmp_path):
    go(experiment_file, tmp_path / "a", "oracle.steps=2", "stop.rounds=4")
    go(tmp_path / "a" / "config.toml", tmp_path / "b")
    assert_same_files(tmp_path / "a", tmp_path / "b")


def test_rows_per_round_and_client(experiment_file, tmp_path):
    """No extra code: held-out figures of every site in every recorded round; a site without test rows has none."""
    go(experiment_file, tmp_path / "run", "output.clients_every=1", "stop.rounds=3")
    table = pl.read_csv(tmp_path / "run" / "rounds.csv")
    assert table["round"].to_list() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    last = table.filter(pl.col("round") == 3).drop("round")
    assert last.equals(fd.load(tmp_path / "run").clients)
    east = last.filter(pl.col("client") == "east")
    assert east["test_rows"].item() == 0
    assert east["global_accuracy"].item() is None
    assert table["global_accuracy"].drop_nulls().len() == 6


def test_the_summary_labels_model_and_average(experiment_file, tmp_path):
    outcome = go(experiment_file, tmp_path / "run", "stop.rounds=2")
    held = fd.load(tmp_path / "run").summary["metrics on held-out rows"]
    assert set(held) == {"global theta (received)", "local theta_k (after local work)"}
    accuracy = held["global theta (received)"]["accuracy"]
    table = fd.load(tmp_path / "run").clients.drop_nulls("global_accuracy")
    assert accuracy["mean by clients"] == pytest.approx(table["global_accuracy"].mean())
    weighted = (table["global_accuracy"] * table["test_rows"]).sum() / table["test_rows"].sum()
    assert accuracy["mean by samples"] == accuracy["pooled"] == pytest.approx(weighted)
    assert outcome.evaluated[0].model == "global theta (received)"


def test_a_folder_that_is_not_empty_is_left_alone(experiment_file, tmp_path):
    out = tmp_path / "run"
    go(experiment_file, out, "stop.rounds=2")
    (out / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(FileExistsError, match=r"is not empty, and nothing in it was touched.*--force"):
        go(experiment_file, out, "stop.rounds=3")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    go(experiment_file, out, "stop.rounds=3", force=True)
    assert fd.load(out).history.rounds == 3
    assert (out / "notes.txt").read_text() == "mine"


def test_a_run_that_cannot_start_replaces_nothing(experiment_file, tmp_path):
    out = tmp_path / "run"
    go(experiment_file, out, "stop.rounds=2")
    text = experiment_file.read_text().replace("StochasticGradient", "Exact")
    experiment_file.write_text(text.replace("steps = 3\nbatch_size = 4\n", ""))
    with pytest.raises(ValueError, match=r"oracles\.Exact needs a quadratic loss"):
        go(experiment_file, out, force=True)
    assert fd.load(out).history.rounds == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_everything_written(experiment_file, tmp_path, number):
    def stop(solution):
        if solution.history.rounds == 5:
            os.kill(os.getpid(), number)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    outcome = go(experiment_file, tmp_path / "run", callbacks=[stop])
    assert outcome.stopped_by == number.name
    assert fd.load(tmp_path / "run").history.rounds == 5
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    told = []
    runs.resume(tmp_path / "run", tell=told.append)
    assert "goes on after round 5" in told[0]
    assert "bit-identical" in told[0]
    go(experiment_file, tmp_path / "whole")
    assert_same_files(tmp_path / "run", tmp_path / "whole")


def test_a_second_ctrl_c_stops_at_once(experiment_file, tmp_path):
    def stop(solution):
        if solution.history.rounds == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    outcome = go(experiment_file, tmp_path / "run", callbacks=[stop])
    assert outcome.stopped_by == "SIGINT"
    assert fd.load(tmp_path / "run").history.rounds == 4


def test_a_finished_run_does_no_further_round_and_says_so(experiment_file, tmp_path):
    go(experiment_file, tmp_path / "run", "stop.rounds=4")
    # Killed right after its last round: the checkpoint is there, the summary is not.
    (tmp_path / "run" / "summary.json").unlink()
    assert fd.load(tmp_path / "run").status == "unfinished"
    told = []
    outcome = runs.resume(tmp_path / "run", tell=told.append)
    assert "finished after round 4 (round limit): 0 further rounds were done" in told[0]
    assert outcome.solution.history.rounds == outcome.began_at == 4
    assert fd.load(tmp_path / "run").status == "round limit"


def test_a_converged_run_stays_converged(experiment_file, tmp_path):
    overrides = ("schedule.name=Always", "schedule.probability=0")
    with pytest.raises(ValueError, match="probability = 0 is not a setting"):
        go(experiment_file, tmp_path / "run", *overrides)
    text = experiment_file.read_text().replace('[schedule]\nname = "Skip"\nprobability = 0.3\n', "")
    experiment_file.write_text(text.replace("StochasticGradient", "GradientDescent").replace("batch_size = 4\n", ""))
    go(experiment_file, tmp_path / "run", "stop.tolerance=1e-3", "stop.rounds=100")
    done = fd.load(tmp_path / "run").history.rounds
    assert done < 100
    told = []
    outcome = runs.resume(tmp_path / "run", rounds=200, tell=told.append)
    assert f"finished after round {done} (converged)" in told[0]
    assert outcome.solution.converged


def test_rounds_can_be_raised_and_not_lowered(experiment_file, tmp_path):
    go(experiment_file, tmp_path / "run", "stop.rounds=5")
    runs.resume(tmp_path / "run", rounds=10)
    go(experiment_file, tmp_path / "whole")
    assert_same_files(tmp_path / "run", tmp_path / "whole")
    assert (tmp_path / "run" / "config.toml").read_text() == (tmp_path / "whole" / "config.toml").read_text()
    with pytest.raises(ValueError, match="rounds = 9: the run has done 10 rounds already"):
        runs.resume(tmp_path / "run", rounds=9)


def test_a_changed_configuration_or_table_is_refused(experiment_file, tmp_path):
    out = tmp_path / "run"
    go(experiment_file, out, "stop.rounds=2")
    config = (out / "config.toml").read_text()
    (out / "config.toml").write_text(config.replace("step_size = 2.0", "step_size = 3.0"))
    with pytest.raises(ValueError, match=r"algorithm\.step_size was 2\.0 and is 3\.0"):
        runs.resume(out, rounds=4)
    (out / "config.toml").write_text(config)
    table = (tmp_path / "south.csv").read_text().splitlines()
    (tmp_path / "south.csv").write_text("\n".join(table[:-1]) + "\n")
    with pytest.raises(ValueError, match=r"belongs to other data: the rows of 3 of 3 clients have changed"):
        runs.resume(out, rounds=4)


def run_until_killed(experiment_file, out, at):
    """Runs in a process of its own, and kills it half-way through writing its `at`-th checkpoint."""

    def half(tensors, path, metadata):
        nonlocal at
        at -= 1
        write(tensors, path, metadata)
        if at == 0:
            Path(path).write_bytes(Path(path).read_bytes()[:1000])
            os.kill(os.getpid(), signal.SIGKILL)

    write, checkpoint.save_file = checkpoint.save_file, half
    go(experiment_file, out)


@pytest.mark.parametrize("at", [1, 3])
def test_a_kill_during_a_write_loses_at_most_the_last_interval(experiment_file, tmp_path, at):
    """Checkpoints are due at rounds 2, 4, 6: killed in the third, the run goes on from round 4."""
    out = tmp_path / "run"
    killed = subprocess.run([sys.executable, __file__, str(experiment_file), str(out), str(at)], timeout=300)
    assert killed.returncode == -signal.SIGKILL
    told = []
    runs.resume(out, tell=told.append)
    assert ("goes on after round 4" if at == 3 else "no checkpoint had been written yet") in told[0]
    go(experiment_file, tmp_path / "whole")
    assert_same_files(out, tmp_path / "whole")
    assert not [path for path in out.iterdir() if path.name.endswith(".part")]


def test_a_kill_at_any_moment_loses_at_most_the_last_interval(experiment_file, tmp_path):
    """Killed from outside, wherever it happens to be."""
    out = tmp_path / "run"
    text = experiment_file.read_text().replace("rounds = 10", "rounds = 1000000").replace("clients_every = 3", "")
    experiment_file.write_text(text)
    process = subprocess.Popen([sys.executable, __file__, str(experiment_file), str(out), "0"])
    deadline = time.monotonic() + 300
    while not (out / "history.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    process.kill()
    process.wait()
    seen = fd.load(out).history.rounds
    told = []
    done = int(np.ceil((seen + 4) / 2) * 2)
    runs.resume(out, rounds=done, tell=told.append)
    began = int(told[0].split("after round ")[1].split(";")[0])
    assert 0 <= began - seen <= 2, "the history is written right after the checkpoint"
    expected = uninterrupted(experiment_file, done)
    np.testing.assert_array_equal(fd.load(out).theta, expected.theta)
    np.testing.assert_array_equal(fd.load(out).duals, expected.duals)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def half():
        with files.replacing(path) as temporary:
            temporary.write_text("ne")
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_not_a_number_becomes_null_in_json_and_an_empty_cell_in_csv(tmp_path):
    folder = runs.RunFolder.create(tmp_path / "run")
    folder.write_json("summary.json", {"a": float("nan"), "b": [np.float64(1.5), np.int64(2)]})
    assert json.loads((folder / "summary.json").read_text()) == {"a": None, "b": [1.5, 2]}


def test_what_is_not_a_run_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a run: it holds no config\.toml"):
        fd.load(tmp_path)


def test_predictions_for_tables_are_those_of_the_training_code(experiment_file, tmp_path):
    outcome = go(experiment_file, tmp_path / "run", "data.test_fraction=0")
    model = runs.load_model(tmp_path / "run" / "model.safetensors")
    table = runs.predict_files(model, [tmp_path / "south.csv"])
    x = outcome.solution.problem.clients.features[1]
    theta = outcome.solution.theta
    expected = 1 / (1 + np.exp(-(x @ theta[:-1] + theta[-1])))
    np.testing.assert_allclose(table["probability of yes"], expected, rtol=1e-12)
    assert table["prediction"].to_list() == ["yes" if p > 0.5 else "no" for p in expected]
    assert table["row"].to_list() == list(range(1, 21))


if __name__ == "__main__":
    run_until_killed(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
