"""Harmonized sites against one central table: the cases that go wrong when sites prepare their data alone.

The references are NumPy and scikit-learn on the joined table, prepared there by hand.
"""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedual.tables import (
    Category,
    ClassTarget,
    Number,
    NumberTarget,
    Schema,
    Summary,
    Transform,
    prepare,
    read_sites,
    summarize,
    validate_files,
)


def write(folder, **frames):
    for name, frame in frames.items():
        pl.DataFrame(frame).write_csv(folder / f"{name}.csv")
    return [folder / f"{name}.csv" for name in frames]


def logistic(x, y):
    return LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, y)


def test_sites_with_other_columns_orders_and_categories_give_one_design(tmp_path):
    files = write(
        tmp_path,
        A={"sex": ["F", "M", "F"], "age": [60, 70, 80], "y": [1.0, 2.0, 3.0]},
        B={"y": [4.0, 5.0, 6.0], "ward": ["x", "y", "z"], "age": [50, 40, 90], "sex": ["M", "U", "F"]},
    )
    schema = Schema(target=NumberTarget(name="y"), features={"sex": Category(), "age": Number()})
    prepared = prepare(files, schema, intercept=False)
    x, y = prepared.clients.pooled()
    sex, age = np.array(list("FMFMUF")), np.array([60.0, 70, 80, 50, 40, 90])
    central = np.column_stack([sex == "M", sex == "U", StandardScaler().fit_transform(age[:, None])])
    assert prepared.clients.columns == ("sex=M", "sex=U", "age")
    np.testing.assert_allclose(x, central, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(y, [1, 2, 3, 4, 5, 6])
    assert prepared.report.dropped_columns == {"ward": "not in the schema, found at site 'B'"}


def test_units_differ_and_a_site_has_one_row_yet_moments_and_fit_are_the_pooled_ones(tmp_path):
    rng = np.random.default_rng(0)
    glucose, age = rng.normal(110, 30, size=61), rng.normal(60, 10, size=61)
    y = (rng.random(61) < 1 / (1 + np.exp(-0.03 * (glucose - 110) - 0.05 * (age - 60)))).astype(int)
    factor, b, c = 18.016, slice(35, 60), slice(60, 61)
    files = write(
        tmp_path,
        A={"glucose": glucose[:35], "age": age[:35], "y": y[:35]},
        B={"age": age[b], "glucose": glucose[b] / factor, "y": y[b]},
        C={"glucose": glucose[c], "y": y[c], "age": age[c]},
    )
    features = {"glucose": Number(unit="mg/dL", factors={"B": factor}), "age": Number()}
    prepared = prepare(files, Schema(target=ClassTarget(name="y"), features=features), intercept=False)
    central = np.column_stack([glucose, age])
    scaler = StandardScaler().fit(central)
    center, scale = prepared.transform.scaling()
    np.testing.assert_allclose(center, scaler.mean_, rtol=1e-10)
    np.testing.assert_allclose(scale, scaler.scale_, rtol=1e-10)
    x, labels = prepared.clients.pooled()
    np.testing.assert_allclose(x, scaler.transform(central), rtol=0, atol=1e-10)
    assert prepared.clients.sizes.tolist() == [35, 25, 1]

    ours, reference = logistic(x, labels), logistic(central, y)
    coef, intercept = prepared.transform.original_scale(ours.coef_, ours.intercept_)
    assert coef.shape == (1, 2)
    assert intercept.shape == (1,)
    np.testing.assert_allclose(coef, reference.coef_, rtol=1e-8)
    np.testing.assert_allclose(intercept, reference.intercept_, rtol=1e-8)


def test_coefficients_return_to_the_original_scale_with_categories_and_several_outputs(tmp_path):
    rng = np.random.default_rng(3)
    x, group = rng.normal(50, 9, size=40), rng.choice(list("abc"), size=40)
    z = x + 4 * (group == "b") - 7 * (group == "c") + rng.normal(size=40)
    files = write(
        tmp_path, A={"x": x[:15], "g": group[:15], "y": z[:15]}, B={"x": x[15:], "g": group[15:], "y": z[15:]}
    )
    schema = Schema(target=NumberTarget(name="y"), features={"g": Category(categories=("c", "a", "b")), "x": Number()})
    prepared = prepare(files, schema, intercept=False)
    design, y = prepared.clients.pooled()
    central = np.column_stack([group == "a", group == "b", x])
    outputs, reference = LinearRegression().fit(design, np.column_stack([y, 2 - y])), LinearRegression().fit(central, z)
    coef, intercept = prepared.transform.original_scale(outputs.coef_, outputs.intercept_)
    np.testing.assert_allclose(coef, [reference.coef_, -reference.coef_], rtol=1e-9)
    np.testing.assert_allclose(intercept, [reference.intercept_, 2 - reference.intercept_], rtol=1e-9)
    one, offset = prepared.transform.original_scale(outputs.coef_[0], outputs.intercept_[0])
    assert offset.shape == ()
    np.testing.assert_array_equal(one, coef[0])
    with pytest.raises(
        ValueError, match=r"coef has shape \(4,\); its last axis must be the 3 of \('g=a', 'g=b', 'x'\)"
    ):
        prepared.transform.original_scale(np.zeros(4), 0.0)


@pytest.mark.parametrize("classes", [None, ("0", "1", "2")])
def test_labels_have_one_code_everywhere_although_sites_lack_classes(tmp_path, classes):
    rng = np.random.default_rng(1)
    labels = {"A": [0, 1] * 10, "B": [2] * 10, "C": [0, 1, 2] * 10}
    sites = {site: {"x": rng.normal(size=len(y)) + np.array(y), "y": y} for site, y in labels.items()}
    schema = Schema(target=ClassTarget(name="y", classes=classes), features={"x": Number()})
    prepared = prepare(write(tmp_path, **sites), schema)
    assert prepared.transform.classes == ("0", "1", "2")
    for site, y in zip(prepared.clients.names, prepared.clients.targets, strict=True):
        np.testing.assert_array_equal(y, labels[site])
    x, y = prepared.clients.pooled()
    ours = logistic(x[:, :1], y)
    central = np.concatenate([site["x"] for site in sites.values()])[:, None]
    coef, intercept = prepared.transform.original_scale(ours.coef_, ours.intercept_)
    reference = logistic(central, np.concatenate(list(labels.values())))
    assert coef.shape == (3, 1)
    for a, b in ((coef, reference.coef_), (intercept, reference.intercept_)):
        np.testing.assert_allclose(a - a[0], b - b[0], rtol=1e-6, atol=1e-8)
    assert "target 'y' has one class at site 'B'" in prepared.report.warnings


def test_a_constant_column_gives_no_nan_and_a_warning_that_names_column_and_site(tmp_path, caplog):
    files = write(
        tmp_path,
        A={"smoker": [0, 1, 1], "device": [3, 3, 3], "age": [60.1, 70.2, 80.3], "y": [0, 1, 0]},
        B={"smoker": [0, 0, 0], "device": [3, 3, 3], "age": [0.1, 0.1, 0.1], "y": [1, 1, 0]},
    )
    features = {"smoker": Number(), "device": Number(), "age": Number()}
    prepared = prepare(files, Schema(target=ClassTarget(name="y"), features=features))
    assert prepared.clients.columns == ("smoker", "age", "intercept")
    central = np.array([[0, 60.1], [1, 70.2], [1, 80.3], [0, 0.1], [0, 0.1], [0, 0.1]])
    x, _ = prepared.clients.pooled()
    np.testing.assert_allclose(x[:, :2], StandardScaler().fit_transform(central), rtol=0, atol=1e-10)
    assert "column 'smoker' is constant (zero variance) at site 'B'" in caplog.text
    assert "column 'age' is constant (zero variance) at site 'B'" in caplog.text
    assert "column 'device' is dropped from the design: constant (3) at every site" in caplog.text


SENTINELS = Schema(
    target=NumberTarget(name="y"),
    features={"x": Number(missing=("-1",)), "g": Category(missing=("-1",))},
)
SITE_PROGRAM = """
import json, sys
from fedual.tables import Schema, Transform, read_sites, summarize
site, file, schema = sys.argv[1:]
(table,), schema = read_sites({site: file}), Schema.from_toml(schema)
print(json.dumps(summarize(table, schema).to_dict()), flush=True)
x, y = Transform.from_dict(json.loads(sys.stdin.readline())).apply(table)
print(json.dumps([x.tolist(), y.tolist()]))
"""


def test_fill_values_are_the_pooled_ones_in_one_process_and_in_two(tmp_path):
    """Each site is a process that sees its own file; only the summary and the transform cross, as JSON."""
    files = write(
        tmp_path,
        A={"x": ["1.5", "-1", "", "4"], "g": ["a", "NA", "b", "-1"], "y": [1, 2, 3, 4]},
        B={"x": ["NA", "7.25", "-1.0"], "g": ["b", "", "b"], "y": [5, 6, 7]},
    )
    together = prepare(files, SENTINELS, intercept=False)
    observed = np.array([1.5, 4, 7.25])
    filled = np.array([1.5, observed.mean(), observed.mean(), 4, observed.mean(), 7.25, observed.mean()])
    central = np.column_stack([(filled - observed.mean()) / observed.std(), [0, 1, 1, 1, 1, 1, 1]])
    np.testing.assert_allclose(together.clients.pooled()[0], central, rtol=0, atol=1e-12)

    sites = {
        file.stem: subprocess.Popen(
            [sys.executable, "-c", SITE_PROGRAM, file.stem, str(file), SENTINELS.to_toml()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for file in reversed(files)
    }
    summaries = [Summary.from_dict(json.loads(process.stdout.readline())) for process in sites.values()]
    transform = Transform.fit(SENTINELS, summaries)
    assert transform == together.transform
    for name, x, y in zip(together.clients.names, together.clients.features, together.clients.targets, strict=True):
        out, _ = sites[name].communicate(json.dumps(transform.to_dict()) + "\n", timeout=60)
        assert json.loads(out) == [x.tolist(), y.tolist()]


def test_sites_without_labels_are_left_out_and_their_values_do_not_count(tmp_path):
    files = write(
        tmp_path,
        A={"x": [1.0, 2.0, 3.0, 4.0, 5.0], "y": ["0", "1", "0", "1", "1"]},
        B={"x": [6.0, 700.0, 8.0, 900.0, 10.0], "y": ["1", "", "0", "NA", "1"]},
        C={"x": [1e6, 2e6], "y": ["", "NA"]},
    )
    schema = Schema(target=ClassTarget(name="y"), features={"x": Number()})
    prepared = prepare(files, schema)
    assert prepared.clients.names == ("A", "B")
    assert prepared.clients.sizes.tolist() == [5, 3]
    np.testing.assert_array_equal(prepared.clients.targets[1], [1, 0, 1])
    (center,), (scale,) = prepared.transform.scaling()
    labelled = np.array([1.0, 2, 3, 4, 5, 6, 8, 10])
    np.testing.assert_allclose([center, scale], [labelled.mean(), labelled.std()], rtol=1e-12)
    assert prepared.report.rows_without_target == {"B": 2, "C": 2}
    assert prepared.report.dropped_sites == {"C": "none of its 2 rows has a target 'y'"}
    assert validate_files(files, schema) == prepared.report


def test_one_file_with_a_site_column_is_the_same_as_one_file_per_site(tmp_path):
    rng = np.random.default_rng(4)
    site, x, y = np.array(list("ABCAB") * 4), rng.normal(size=20), rng.normal(size=20)
    together = write(tmp_path, all={"hospital": site, "x": x, "y": y})
    apart = write(tmp_path, **{name: {"x": x[site == name], "y": y[site == name]} for name in "CBA"})
    schema = Schema(target=NumberTarget(name="y"), features={"x": Number()})
    one = prepare(together, schema.model_copy(update={"site": "hospital"}))
    several = prepare(apart, schema)
    assert one.transform.codes == several.transform.codes
    for name in "ABC":
        np.testing.assert_array_equal(*(p.clients.features[p.clients.names.index(name)] for p in (one, several)))
    assert [summarize(t, schema) for t in read_sites(apart)][2].site == "A"
