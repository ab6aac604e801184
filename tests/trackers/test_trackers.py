"""Every round reaches the tracker once, with the numbers of the history; tracking changes none."""

import numpy as np
import pytest

import fedual as fd
from fedual.trackers import MLflow, TensorBoard, Tracker


class Collect(Tracker):
    def __init__(self, skip=0):
        super().__init__(skip)
        self.rows = []

    def log(self, round, figures):
        self.rows.append((round, figures))


def run(problem, *callbacks, rounds=120, state=None):
    method = fd.FedPD(fd.oracles.Exact(), step_size=1.0)
    return fd.solve(
        problem, method, rounds=rounds, evaluate_every=2, schedule=fd.schedules.Skip(0.3), callbacks=callbacks,
        state=state,
    )  # fmt: skip


def test_every_round_once_and_no_number_changed(regression):
    tracker = Collect()
    solution = run(regression, tracker)
    assert [number for number, _ in tracker.rows] == list(range(1, 121))
    assert "stationarity" not in tracker.rows[0][1]  # the first round was not evaluated
    assert tracker.rows[1][1]["stationarity"] == solution.history["stationarity"][1]
    np.testing.assert_array_equal(solution.theta, run(regression).theta)


def test_a_resumed_run_hands_over_only_what_is_new(regression):
    first = run(regression, rounds=60)
    tracker = Collect(skip=60)
    run(regression, tracker, state=first.state)
    assert [number for number, _ in tracker.rows] == list(range(61, 121))


def test_tensorboard_files_hold_the_history(regression, tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra trackers is not installed")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter  # noqa: F401, the format that is read below

    with TensorBoard(tmp_path) as tracker:
        solution = run(regression, tracker, rounds=10)
    (path,) = tmp_path.iterdir()
    data, found = path.read_bytes(), {}
    while data:  # length, its checksum, an event, its checksum
        length = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        for value in event.summary.value:
            if value.tag == "objective":
                found[event.step] = value.simple_value
    assert sorted(found) == [2, 4, 6, 8, 10]
    np.testing.assert_allclose([found[t] for t in sorted(found)], solution.history["objective"][1::2], rtol=1e-6)


def test_an_mlflow_run_holds_history_settings_and_verdict(regression, tmp_path):
    pytest.importorskip("mlflow", reason="the extra trackers is not installed")
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{tmp_path}/runs.db"
    with MLflow(store, experiment="test", run="first") as tracker:
        solution = run(regression, tracker, rounds=6)
    client = MlflowClient(tracking_uri=store)
    (found,) = client.search_runs([client.get_experiment_by_name("test").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["algorithm"] == "FedPD"
    assert found.data.params["schedule.probability"] == "0.3"
    assert found.data.tags["status"] == solution.status
    steps = client.get_metric_history(found.info.run_id, "objective")
    assert {m.step: m.value for m in steps} == {t: solution.history["objective"][t - 1] for t in (2, 4, 6)}
