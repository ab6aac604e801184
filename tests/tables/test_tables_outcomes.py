"""From one CSV file per hospital to a model with standard errors in the files' own units.

The references are statsmodels on the joined raw table, whose columns are made there by hand.
"""

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from statsmodels.duration.hazard_regression import PHReg

import fedual as fd
from fedual.tables import (
    Category,
    ClassTarget,
    Number,
    NumberTarget,
    Offset,
    Schema,
    TimeTarget,
    Transform,
    inspect_files,
    prepare,
    read_sites,
    summarize,
)

FEATURES = {"age": Number(), "sex": Category(), "dose": Number(unit="mg")}
TARGETS = {
    "cost": NumberTarget(name="cost"),
    "died": ClassTarget(name="died"),
    "ward": ClassTarget(name="ward"),
    "falls": NumberTarget(name="falls"),
    "visits": NumberTarget(name="visits"),
    "days": TimeTarget(name="days", event="status", labels=("alive", "dead")),
}
EXPOSURE = Offset(name="years", kind="exposure")


@pytest.fixture(scope="module")
def raw():
    rng = np.random.default_rng(11)
    n = 170
    age, dose, female = rng.normal(60, 12, n), rng.gamma(2.0, 40.0, n), rng.integers(0, 2, n)
    z = 0.03 * (age - 60) - 0.004 * (dose - 80) + 0.5 * female
    years = rng.uniform(0.2, 3, n)
    return pl.DataFrame(
        {
            "hospital": np.repeat(["north", "south", "west", "hut"], [70, 59, 40, 1]),
            "age": age,
            "sex": np.where(female == 1, "F", "M"),
            "dose": dose,
            "cost": 900 + 300 * z + rng.normal(0, 200, n),
            "died": np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "yes", "no"),
            "ward": [rng.choice(["a", "b", "c"], p=np.exp([0, v, -v]) / np.exp([0, v, -v]).sum()) for v in z],
            "falls": rng.poisson(np.exp(z) * years),
            "visits": rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(z) * years)),
            "days": np.ceil(20 * rng.exponential(np.exp(-z))),
            "status": np.where(rng.random(n) < 0.7, "dead", "alive"),
            "years": years,
        }
    )


@pytest.fixture
def files(raw, tmp_path):
    for (site,), rows in raw.group_by("hospital", maintain_order=True):
        rows.drop("hospital").write_csv(tmp_path / f"{site}.csv")
    return sorted(tmp_path.glob("*.csv"))


def schema(name):
    offset = EXPOSURE if name in ("falls", "visits") else None
    return Schema(target=TARGETS[name], offset=offset, features=FEATURES)


def reference(raw, name, **errors):
    """The fit on the raw table; columns age, sex, dose, constant."""
    x = np.column_stack([raw["age"], raw["sex"] == "M", raw["dose"]]).astype(float)
    design, y, exposure = sm.add_constant(x, prepend=False), raw[name].to_numpy(), raw["years"].to_numpy()
    newton = {"method": "newton", "tol": 1e-14, "maxiter": 500, "disp": 0, **errors}
    if name == "cost":
        return sm.OLS(y, design).fit(**errors)
    if name == "died":
        return sm.Logit(y == "yes", design).fit(**newton)
    if name == "ward":
        return sm.MNLogit(np.searchsorted(["a", "b", "c"], y.tolist()), design).fit(**newton)
    if name == "falls":
        return sm.Poisson(y, design, exposure=exposure).fit(**newton)
    if name == "visits":  # statsmodels' own Newton steps diverge on the raw columns from its usual start
        start = np.append(sm.Poisson(y, design, exposure=exposure).fit(**newton).params, 0.7)
        return sm.NegativeBinomial(y, design, exposure=exposure).fit(start_params=start, **newton)
    strata, status = raw["hospital"].to_numpy(), (raw["status"] == "dead").to_numpy().astype(float)
    return PHReg(y.astype(float), x, status=status, strata=strata, ties="efron").fit(method="newton", tol=1e-12, disp=0)


def loss(name, intercept):
    losses = fd.losses
    return {
        "cost": lambda: losses.least_squares(intercept=intercept),
        "died": lambda: losses.logistic(intercept=intercept),
        "ward": lambda: losses.multinomial(3, intercept=intercept),
        "falls": lambda: losses.poisson(intercept=intercept, offset=True),
        "visits": lambda: losses.negative_binomial(intercept=intercept, offset=True),
        "days": losses.cox,
    }[name]()


@pytest.mark.parametrize("by_loss", [False, True], ids=["intercept column", "intercept of the loss"])
@pytest.mark.parametrize("name", TARGETS)
def test_the_coefficient_table_of_the_files_is_that_of_the_joined_raw_table(raw, files, name, by_loss):
    prepared = prepare(files, schema(name), intercept=not by_loss)
    problem = fd.Problem(loss(name, by_loss), prepared.clients)
    found = fd.infer(problem, problem.minimum().theta, transform=prepared.transform)
    expected = reference(raw, name)
    errors = np.asarray(expected.bse)
    # one standard error is the natural unit of a coefficient
    np.testing.assert_allclose(
        found.coefficients, np.ravel(expected.params), rtol=1e-6, atol=1e-6 * float(errors.max())
    )
    np.testing.assert_allclose(found.standard_errors, np.ravel(errors), rtol=1e-5)
    interval = np.reshape(np.swapaxes(expected.conf_int(), 0, 1) if name == "ward" else expected.conf_int(), (-1, 2))
    np.testing.assert_allclose(found.intervals(), interval, rtol=1e-4, atol=1e-5 * float(errors.max()))
    assert found.names[:1] == {"ward": ("age, class b",)}.get(name, ("age",))


def test_site_clustered_errors_on_the_original_scale(raw, files):
    prepared = prepare(files, schema("falls"))
    problem = fd.Problem(loss("falls", False), prepared.clients)
    found = fd.infer(problem, problem.minimum().theta, "site", transform=prepared.transform)
    groups = np.unique(raw["hospital"], return_inverse=True)[1]
    expected = reference(raw, "falls", cov_type="cluster", cov_kwds={"groups": groups})
    np.testing.assert_allclose(found.standard_errors, expected.bse, rtol=1e-5)
    assert found.names == ("age", "sex=M", "dose", "intercept")


def test_a_federated_run_from_files_gives_the_table_too(raw, files):
    prepared = prepare(files, schema("died"))
    problem = fd.Problem(loss("died", False), prepared.clients)
    solution = fd.solve(problem, fd.ADMM(step_size=8.0), rounds=2000, tolerance=1e-20, evaluate_every=10)
    found = fd.infer(problem, solution.theta, transform=prepared.transform)
    expected = reference(raw, "died")
    np.testing.assert_allclose(found.coefficients, expected.params, rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors, expected.bse, rtol=1e-5)


def test_the_original_scale_needs_an_intercept_and_its_own_clients(files):
    prepared = prepare(files, schema("cost"), intercept=False)
    problem = fd.Problem(fd.losses.least_squares(), prepared.clients)
    with pytest.raises(ValueError, match=r"has no intercept.*standardize = false"):
        fd.infer(problem, problem.minimum().theta, transform=prepared.transform)
    other = prepare(files, Schema(target=TARGETS["cost"], features={"age": Number()}))
    problem = fd.Problem(fd.losses.least_squares(), other.clients)
    with pytest.raises(ValueError, match=r"\('age', 'intercept'\) are not those of the transform"):
        fd.infer(problem, problem.minimum().theta, transform=prepared.transform)


def test_rows_without_event_or_exposure_are_dropped_and_counted(tmp_path):
    (tmp_path / "A.csv").write_text("x,n,t,e,days\n1,3,5,1,2\n2,,6,0,4\n4,1,,1,8\n5,0,8,,1\n7,2,9,yes,NA\n8,9,1,0,1\n")
    (tmp_path / "B.csv").write_text("x,n,t,e,days\n0,1,5,0,2\n6,2,5,no,4\n")
    files = [tmp_path / "A.csv", tmp_path / "B.csv"]
    counts = Schema(
        target=NumberTarget(name="n"), offset=Offset(name="days", kind="exposure"), features={"x": Number()}
    )
    prepared = prepare(files, counts.model_copy(update={"standardize": False}))
    assert prepared.report.rows_without_target == {"A": 2}
    assert prepared.clients.columns == ("x", "intercept", "days")
    np.testing.assert_allclose(
        prepared.clients.features[0], [[1, 1, np.log(2)], [4, 1, np.log(8)], [5, 1, 0], [8, 1, 0]]
    )
    np.testing.assert_array_equal(prepared.clients.targets[0], [3, 1, 0, 9])

    times = TimeTarget(name="t", event="e", recode={"yes": "1", "no": "0"})
    prepared = prepare(files, Schema(target=times, features={"x": Number()}))
    assert prepared.report.rows_without_target == {"A": 2}
    assert prepared.clients.columns == ("x",)
    np.testing.assert_array_equal(prepared.clients.targets[0], [[5, 1], [6, 0], [9, 1], [1, 0]])
    assert prepared.report.sites[0].classes == {"0": 2, "1": 2}
    assert "no event was observed at site 'B'" in prepared.report.warnings


def test_an_offset_of_its_own_kind_and_unit_is_kept_as_it_is(tmp_path):
    (tmp_path / "A.csv").write_text("x,n,o\n1,3,-0.5\n2,1,0\n")
    (tmp_path / "B.csv").write_text("x,n,o\n3,3,7\n")
    offset = Offset(name="o", kind="offset", factors={"B": 2.0})
    declared = Schema(target=NumberTarget(name="n"), offset=offset, features={"x": Number()})
    files = [tmp_path / "A.csv", tmp_path / "B.csv"]
    prepared = prepare(files, declared)
    assert [x[:, -1].tolist() for x in prepared.clients.features] == [[-0.5, 0.0], [14.0]]
    table = read_sites(files)[1]
    assert prepared.transform.features(table).shape == (1, 1)
    assert prepared.transform.offset(table).tolist() == [14.0]
    assert Transform.from_dict(prepared.transform.to_dict()) == prepared.transform
    with pytest.raises(ValueError, match=r"column 'o' has factors for sites \['B'\]"):
        prepare(files[:1], declared)


@pytest.mark.parametrize(
    ("declared", "line", "message"),
    [
        ("counts", "1,3,5,1,0", r"A\.csv \(site 'A'\), column 'days', row 2: 0 .*exposure must be positive"),
        ("counts", "1,3,5,1,many", r"column 'days', row 2: 'many' is not a finite number"),
        ("times", "1,3,-5,1,1", r"column 't', row 2: -5 .*a time must be >= 0"),
        ("times", "1,3,5,2,1", r"column 'e', row 2: '2' is not one of the labels \['0', '1'\]"),
        ("times", "1,3,soon,1,1", r"column 't', row 2: 'soon' is not a finite number"),
        ("times", "1,3,5,0,1", r"no row of any site has an observed event: 'e' is \{'0': 2\}"),
    ],
)
def test_bad_cells_of_an_outcome_are_refused_with_their_place(tmp_path, declared, line, message):
    (tmp_path / "A.csv").write_text(f"x,n,t,e,days\n2,1,4,0,1\n{line}\n")
    offset = Offset(name="days", kind="exposure")
    schemas = {
        "counts": Schema(target=NumberTarget(name="n"), offset=offset, features={"x": Number()}),
        "times": Schema(target=TimeTarget(name="t", event="e"), features={"x": Number()}),
    }
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "A.csv", schemas[declared])


def test_an_outcome_column_that_a_file_lacks_is_refused_or_leaves_the_site_out(tmp_path):
    (tmp_path / "A.csv").write_text("x,n,days\n2,1,4\n3,0,1\n")
    (tmp_path / "B.csv").write_text("x,n\n2,1\n")
    files = [tmp_path / "A.csv", tmp_path / "B.csv"]
    declared = Schema(
        target=NumberTarget(name="n"), offset=Offset(name="days", kind="exposure"), features={"x": Number()}
    )
    with pytest.raises(ValueError, match=r"B\.csv \(site 'B'\) lacks columns \['days'\]"):
        prepare(files, declared)
    prepared = prepare(files, declared.model_copy(update={"absent": "fill"}))
    assert prepared.clients.names == ("A",)
    assert list(prepared.report.dropped_sites) == ["B"]
    table = read_sites(files)[1]
    assert summarize(table, declared.model_copy(update={"absent": "fill"})).used == 0
    with pytest.raises(ValueError, match=r"B\.csv \(site 'B'\) lacks column 'days', the exposure"):
        prepared.transform.offset(table)


@pytest.mark.parametrize(
    ("target", "offset", "message"),
    [
        ({"kind": "time", "name": "t", "event": "t"}, None, "'t' is both target and event"),
        ({"kind": "time", "name": "t", "event": "x"}, None, "'x' is the event and cannot be a feature"),
        ({"kind": "time", "name": "t", "event": "e", "labels": ["1", "1.0"]}, None, "must tell a censored row"),
        ({"kind": "class", "name": "t"}, {"kind": "exposure", "name": "d"}, "needs a target of kind 'number'"),
        ({"kind": "number", "name": "t"}, {"kind": "exposure", "name": "t"}, "'t' is both target and offset"),
        ({"kind": "number", "name": "t"}, {"kind": "rate", "name": "d"}, r"offset\.kind: .*'rate'"),
    ],
)
def test_contradictory_outcomes_are_refused(target, offset, message):
    value = {"target": target, "features": {"x": {"kind": "number"}}}
    with pytest.raises(ValueError, match=message):
        Schema.from_dict(value if offset is None else value | {"offset": offset})


def test_outcomes_are_proposed_and_written_as_toml(files):
    survival = inspect_files(files, target="days", event="status")
    assert survival.target.labels == ("alive", "dead")
    assert not {"days", "status"} & set(survival.features)
    assert Schema.from_toml(survival.to_toml()) == survival
    counts = inspect_files(files, target="falls", exposure="years")
    assert counts.offset == EXPOSURE
    assert counts.target.kind == "number"
    assert Schema.from_toml(counts.to_toml()) == counts
    assert inspect_files(files, target="falls", offset="years").offset.kind == "offset"
    for arguments, message in (
        ({"target": "days", "event": "ward"}, r"'ward' cannot be the event: its values are \['a', 'b', 'c'\]"),
        ({"target": "sex", "event": "status"}, "'sex' cannot be the time to an event"),
        ({"target": "falls", "exposure": "beds"}, "no column 'beds' for the exposure"),
        ({"target": "falls", "exposure": "years", "offset": "dose"}, "give one of the two"),
    ):
        with pytest.raises(ValueError, match=message):
            inspect_files(files, **arguments)
