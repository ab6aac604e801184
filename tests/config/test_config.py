"""A configuration is refused before anything runs, with section, key, value and what is allowed."""

import math
from typing import Any

import numpy as np
import optax
import pytest

import fedual as fd
from fedual.config import Config, build, build_part
from fedual.config.parts import KINDS, complete_part

MINIMAL = {"data": {"source": "flights"}, "loss": {"name": "logistic"}}


@pytest.mark.parametrize(
    ("kind", "table", "message"),
    [
        (
            "schedule",
            {"name": "Skip", "probability": 1.0},
            r"\[schedule\] Skip: probability = 1.0 must lie in \[0, 1\)",
        ),
        ("schedule", {"name": "Skip", "probability": -0.1}, r"probability = -0.1 must lie in \[0, 1\)"),
        ("schedule", {"name": "Skip", "probability": "half"}, r"probability = 'half' must be a valid number"),
        ("schedule", {"name": "Skip"}, r"probability is required"),
        ("schedule", {"name": "Explicit", "skips": [True, 1]}, r"skips = \[True, 1\] must be a valid boolean"),
        ("algorithm", {"name": "FedPD", "step_size": 0}, r"step_size = 0 must be greater than 0, or must be 'auto'"),
        ("algorithm", {"name": "FedPD", "step_size": math.nan}, r"step_size = nan must be a finite number"),
        ("algorithm", {"name": "FedPd"}, r"\[algorithm\] name = 'FedPd' is unknown. Did you mean 'FedPD'\?"),
        ("oracle", {"name": "GradientDescent", "steps": 0}, r"steps = 0 must be greater than or equal to 1"),
        ("oracle", {"name": "GradientDescent", "steps": 2.5}, r"steps = 2.5 must be a valid integer"),
        ("oracle", {"name": "GradientDescent", "steps": True}, r"steps = True must be a valid integer"),
        ("oracle", {"name": "GradientDescent", "learning_rat": 1}, r"learning_rat = 1 .*Did you mean 'learning_rate'"),
        ("loss", {"name": "logistic", "l2": -1.0}, r"\[loss\] l2 = -1.0 must be greater than or equal to 0"),
        ("loss", {"name": "logistic", "intercept": 1}, r"intercept = 1 must be a valid boolean"),
        ("loss", {"name": "softmax", "classes": 1}, r"\[loss\] softmax: classes = 1 must be an integer >= 2"),
        ("loss", {"name": "from_function"}, r"name = 'from_function' is unknown"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused(kind, table, message):
    with pytest.raises(ValueError, match=message):
        build_part(kind, table)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop": {"rounds": 0}}, r"\[stop\] rounds = 0 must be greater than or equal to 1"),
        ({"stop": {"round": 5}}, r"round = 5 is not a setting here. Did you mean 'rounds'\?"),
        ({"stop": {"tolerance": "small"}}, r"tolerance = 'small' must be a valid number"),
        ({"run": {"seed": -1}}, r"\[run\] seed = -1 must be greater than or equal to 0"),
        ({"output": {"checkpoint_every": 1.5}}, r"checkpoint_every = 1.5 must be a valid integer"),
        ({"problem": {"weights": "rows"}}, r"weights = 'rows' must be 'samples' or 'uniform'"),
        ({"data": {"source": "flights", "test_fraction": 1}}, r"test_fraction = 1 must be less than 1"),
        ({"data": {"source": "flights", "files": ["a.csv"]}}, r"exactly one of source, files and file"),
        ({"data": {"file": "a.csv"}}, r"file needs site"),
        ({"data": {"source": "flights", "target": "late"}}, r"\[data\] target = 'late' does not apply"),
        (
            {"data": {"files": ["a.csv"], "schema": "s.toml", "target": "x"}},
            r"target = 'x' does not apply beside schema",
        ),
        ({"schedul": {"name": "Skip"}}, r"\[schedul\] is not a section. Did you mean 'schedule'\?"),
        ({"oracle": {"steps": 3}}, r"\[oracle\] needs name"),
        ({"stop": 5}, r"stop = 5 must be a section"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config.from_dict(MINIMAL | changes)


def test_all_faults_of_a_section_are_told_at_once():
    with pytest.raises(ValueError, match="rounds = 0") as error:
        Config.from_dict(MINIMAL | {"stop": {"rounds": 0, "tolerance": -1.0}})
    assert "tolerance = -1.0 must be greater than 0" in str(error.value)


def test_every_public_class_can_be_named():
    assert set(KINDS["oracle"].choices()) == set(fd.oracles.__all__) - {"FirstOrder", "Oracle"}
    assert set(KINDS["schedule"].choices()) == set(fd.schedules.__all__) - {"Schedule"}
    assert {"FedPD", "ADMM", "FedAvg"} <= set(KINDS["algorithm"].choices())
    assert {"logistic", "softmax", "least_squares"} <= set(KINDS["loss"].choices())
    assert "LinearPredictor" not in KINDS["loss"].choices()


def test_a_class_of_another_shape_needs_no_configuration_class(monkeypatch):
    """What a later algorithm needs: settings with annotations of their own, found by its signature alone."""

    class Relaxed(fd.FedPD):
        def __init__(
            self, oracle: Any = None, relaxation: float = 1.0, order: tuple[int, ...] = (), mode: str | None = None
        ):
            object.__setattr__(self, "given", (oracle, relaxation, order, mode))
            object.__setattr__(self, "step_size", "auto")

    monkeypatch.setattr("fedual.algorithms.Relaxed", Relaxed, raising=False)
    monkeypatch.setattr("fedual.algorithms.__all__", ["Relaxed"])
    table = {"name": "Relaxed", "relaxation": 1.5, "order": [2, 1]}
    assert build_part("algorithm", table, oracle="an oracle").given == ("an oracle", 1.5, [2, 1], None)
    with pytest.raises(ValueError, match=r"order = .* must be a valid integer"):
        build_part("algorithm", table | {"order": ["a"]})


def test_an_optimizer_is_named_like_everything_else():
    optimizer = {"name": "adam", "learning_rate": 0.1, "b1": 0.5}
    oracle = build_part("oracle", {"name": "Optax", "optimizer": optimizer, "steps": 3})
    expected = optax.adam(0.1, b1=0.5)
    for gradient in ([1.0, -2.0], [0.5, 0.5]):
        got, _ = oracle.optimizer.update(np.array(gradient), oracle.optimizer.init(np.zeros(2)))
        want, _ = expected.update(np.array(gradient), expected.init(np.zeros(2)))
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match=r"\[optimizer\] beta = 1 is not a setting"):
        build_part("oracle", {"name": "Optax", "optimizer": {"name": "adam", "learning_rate": 0.1, "beta": 1}})


def test_an_oracle_for_each_client_is_a_table_of_tables():
    poor = {"name": "GradientDescent", "steps": 1}
    table = {"name": "PerClient", "oracles": {"ward 3": poor}, "default": {"name": "Newton", "tolerance": 1e-6}}
    oracle = build_part("oracle", table)
    assert oracle.oracles == {"ward 3": fd.oracles.GradientDescent(steps=1)}
    assert oracle.default == fd.oracles.Newton(1e-6)
    table["oracles"]["ward 3"] = poor | {"steps": 0}
    with pytest.raises(ValueError, match="steps = 0 must be greater than or equal to 1"):
        build_part("oracle", table)


def test_an_oracle_for_a_method_without_one_is_refused(monkeypatch):
    class Plain(fd.FedAvg):
        def __init__(self, rate: float = 1.0):
            pass

    monkeypatch.setattr("fedual.algorithms.Plain", Plain, raising=False)
    monkeypatch.setattr("fedual.algorithms.__all__", ["Plain"])
    with pytest.raises(ValueError, match=r"\[oracle\] does not apply: Plain takes no oracle"):
        build_part("algorithm", {"name": "Plain"}, oracle=fd.oracles.Exact())


def test_defaults_are_filled_in():
    table = complete_part("oracle", {"name": "SVRG", "batch_size": 4})
    assert table == {"name": "SVRG", "steps": 20, "learning_rate": "auto", "batch_size": 4}


def test_overrides_are_applied_before_checking(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('[data]\nsource = "flights"\n[loss]\nname = "logistic"\n[oracle]\nname = "Newton"\n')
    overrides = ["stop.rounds=7", "oracle.name=GradientDescent", "oracle.steps = 20", "loss.l2=1e-3"]
    config = Config.load(path, overrides)
    assert (config.stop.rounds, config.oracle) == (7, {"name": "GradientDescent", "steps": 20})
    assert config.loss["l2"] == 1e-3
    with pytest.raises(ValueError, match=r"a.toml: \[stop\] roundss = 7 .*Did you mean 'rounds'"):
        Config.load(path, ["stop.roundss=7"])
    with pytest.raises(ValueError, match=r"must have the form section\.key=value"):
        Config.load(path, ["rounds"])
    with pytest.raises(ValueError, match=r"data\.source\.x"):
        Config.load(path, ["data.source.x=1"])


def test_broken_files_are_named(tmp_path):
    path = tmp_path / "a.toml"
    with pytest.raises(FileNotFoundError, match=r"a\.toml"):
        Config.load(path)
    path.write_text("[data\n")
    with pytest.raises(ValueError, match=r"a\.toml is not a TOML file.*line 1"):
        Config.load(path)


def test_the_resolved_file_reads_back_as_the_same_experiment(tmp_path):
    table = MINIMAL | {
        "data": {"source": "flights", "test_fraction": 0.25},
        "oracle": {"name": "GradientDescent", "learning_rate": 1 / 3},
        "schedule": {"name": "Explicit", "skips": [True, False]},
        "stop": {"rounds": 3, "tolerance": 1e-12},
    }
    built = build(Config.from_dict(table))
    path = tmp_path / "resolved.toml"
    path.write_text(built.config.to_toml())
    again = Config.load(path)
    assert again == built.config
    assert again.oracle == {"name": "GradientDescent", "steps": "auto", "learning_rate": 1 / 3}
    assert built.schedule.skips == (True, False)
    expected = fd.data.load("flights").clients.split(0.25, seed=0)
    np.testing.assert_array_equal(built.test.features[0], expected[1].features[0])
    np.testing.assert_array_equal(built.problem.clients.features[-1], expected[0].features[-1])


def test_tables_are_coded_by_the_training_rows_alone(tmp_path):
    rng = np.random.default_rng(0)
    ages = {site: rng.integers(20, 90, 20) for site in "AB"}
    for site, values in ages.items():
        rows = "".join(f"{age},{'yes' if age % 3 else 'no'}\n" for age in values)
        (tmp_path / f"{site}.csv").write_text("age,ill\n" + rows)
    path = tmp_path / "a.toml"
    path.write_text(
        '[data]\nfiles = ["A.csv", "B.csv"]\ntarget = "ill"\ntest_fraction = 0.25\n[loss]\nname = "logistic"\n'
    )
    built = build(Config.load(path))
    assert built.problem.clients.names == built.test.names == ("A", "B")
    assert built.problem.clients.sizes.tolist() == [15, 15]
    assert built.test.sizes.tolist() == [5, 5]
    training = np.concatenate(built.problem.clients.features)
    np.testing.assert_allclose([training.mean(), training.std()], [0, 1], atol=1e-12)
    # Nothing is lost or doubled: undone, the coding gives back every age.
    center, scale = built.transform.scaling()
    for k, site in enumerate("AB"):
        both = np.concatenate([built.problem.clients.features[k], built.test.features[k]])
        np.testing.assert_allclose(np.sort(both[:, 0] * scale + center), np.sort(ages[site]), atol=1e-9)
