"""The command line, through its entry point: what people type, and what they are told when it is wrong."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import fedual as fd
from fedual.cli import main
from fedual.cli.devices import start_jax


@pytest.fixture
def fedual(monkeypatch, capsys, tmp_path):
    """Call the command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedual", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_do_not_import_jax(argument):
    code = (
        "import sys, fedual\nfrom fedual.cli import main\nsys.argv[1:] = sys.argv[1:2]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'jax', 'optax', 'polars', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("resume" if argument == "--help" else fd.__version__) in done.stdout


def test_from_tables_to_predictions(fedual, experiment_file):
    code, out, err = fedual("new", "north.csv", "south.csv", "east.csv", "--target", "ill", "--out", "mine.toml")
    assert (code, err) == (0, "")
    assert "fedual run mine.toml" in out
    code, out, err = fedual("run", "mine.toml", "--out", "runs/a", "--set", "stop.rounds=20", "--set", "oracle.steps=5")
    assert code == 0
    assert "round 20 of 20" in err
    assert "Results are in runs/a" in out
    assert "global theta (received) on 10 held-out rows" in out
    code, out, _ = fedual("resume", "runs/a", "--rounds", "30")
    assert code == 0
    assert fd.load("runs/a").history.rounds == 30
    code, _, err = fedual("resume", "runs/a")
    assert code == 0
    assert "0 further rounds were done" in err
    code, out, _ = fedual("predict", "runs/a", "south.csv", "--out", "predicted.csv")
    assert code == 0
    predicted = pl.read_csv("predicted.csv")
    assert set(predicted["prediction"]) <= {"yes", "no"}
    np.testing.assert_allclose(predicted["probability of no"] + predicted["probability of yes"], 1, rtol=1e-12)
    for picture in ("p.png", "p.svg"):
        code, out, _ = fedual("plot", "runs/a", "--out", picture, "--x", "round")
        assert (code, out) == (0, f"Wrote {picture}.\n")
    with open("p.png", "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    with open("p.svg") as file:
        assert "<svg" in file.read(1000)


def test_new_without_files_is_the_flights_and_overwrites_nothing(fedual):
    assert fedual("new")[0] == 0
    with open("experiment.toml") as file:
        before = file.read()
    assert 'source = "flights"' in before
    code, _, err = fedual("new")
    assert code == 2
    assert "experiment.toml exists and was not touched" in err
    with open("experiment.toml") as file:
        assert file.read() == before


def test_inspect_proposes_a_schema(fedual, experiment_file):
    code, _, err = fedual("inspect", "north.csv", "south.csv", "--target", "ill", "--out", "schema.toml")
    assert code == 0
    assert "50 of 50 rows and 2 of 2 sites are used" in err
    with open("schema.toml") as file:
        assert "[features.age]" in file.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "experiment.toml", "--out", "r", "--set", "oracle.stepss=5"), "stepss = 5 is not a setting here. Did"),
        (("run", "experiment.toml", "--out", "r", "--set", "schedule.probability=1"), "probability = 1 must lie in"),
        (("run", "experiment.toml", "--out", "r", "--set", "data.files=['no.csv']"), "no.csv"),
        (("run", "experiment.toml", "--out", "."), "not empty, and nothing in it was touched"),
        (("run", "none.toml", "--out", "r"), "none.toml: there is no such file"),
        (("run", "experiment.toml", "--out", "r", "--devices", "many"), "--devices many must be a number >= 1"),
        (("resume", "r"), "r is not the folder of a run"),
        (("plot", "r"), "r is not the folder of a run"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(fedual, experiment_file, arguments, message):
    code, out, err = fedual(*arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert not os.path.exists("r")


def test_quiet_is_quiet(fedual, experiment_file):
    assert fedual("run", "experiment.toml", "--out", "r", "--quiet", "--set", "stop.rounds=2") == (0, "", "")


def test_a_stopped_run_says_how_to_go_on(fedual, experiment_file, monkeypatch):
    import signal

    from fedual.cli.progress import Display

    def stop(self, solution):
        if solution.history.rounds == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Display, "__call__", stop)
    code, out, _ = fedual("run", "experiment.toml", "--out", "r")
    assert code == 130
    assert "stopped by SIGINT after round 3" in out
    assert "fedual resume r" in out


def test_datasets_are_listed(fedual):
    code, out, _ = fedual("datasets")
    assert code == 0
    assert "flights" in out
    assert "[data] source" in out


def test_devices_are_set_before_jax_starts_or_refused(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1 --xla_force_host_platform_device_count=4")
    import jax

    there = jax.local_device_count()
    start_jax(None)
    assert os.environ["XLA_FLAGS"].endswith("=4")
    start_jax(str(there))
    assert os.environ["XLA_FLAGS"].split() == ["--xla_other=1", f"--xla_force_host_platform_device_count={there}"]
    with pytest.raises(ValueError, match=f"JAX has started with {there} in this process"):
        start_jax(there + 1)
