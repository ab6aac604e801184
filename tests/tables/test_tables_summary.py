"""What sites share merges into what one table would give."""

import json

import numpy as np
import polars as pl
import pytest

from fedual.tables import (
    Category,
    ClassTarget,
    Moments,
    Number,
    NumberTarget,
    Schema,
    Summary,
    merge,
    split_sites,
    summarize,
)

SCHEMA = Schema(target=ClassTarget(name="y"), features={"x": Number(), "c": Category()})


def summaries(schema=SCHEMA, **columns):
    return [summarize(table, schema) for table in split_sites(pl.DataFrame(columns), "site")]


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1e5, 1.0), (1e9, 1.0), (1e-12, 1e12)])
def test_merged_moments_are_those_of_all_values(mean, deviation):
    rng = np.random.default_rng(0)
    parts = [mean + deviation * rng.normal(size=n) for n in (1, 400, 3, 1, 50)]
    merged = Moments()
    for part in parts:
        merged = merged.merge(Moments.of(part))
    # In extended precision, because the two-pass float64 variance is not good enough to compare with at mean 1e9.
    values = np.concatenate(parts).astype(np.longdouble)
    assert merged.count == len(values)
    np.testing.assert_allclose(merged.mean, float(values.mean()), rtol=1e-14, atol=1e-13 * deviation)
    # A mean crosses as one float64, so its rounding, eps times mean / deviation, is the best that can be had.
    # (The sum of squares minus the squared mean would lose the square of that: everything at mean 1e9.)
    rounding = np.finfo(float).eps * mean / deviation
    np.testing.assert_allclose(merged.deviation, float(values.std()), rtol=max(1e-10, rounding))


def test_a_constant_has_no_deviation_however_it_is_split():
    for value in (0.1, 1e15 / 3, -7e-9):
        merged = Moments.of(np.full(7, value)).merge(Moments.of(np.full(1, value))).merge(Moments())
        assert (merged.count, merged.mean, merged.deviation) == (8, value, 0.0)
    rounded = Moments.of(np.array([1.8 * 18.016, 18.016 * 1.8 * (1 + 2e-16)]))
    assert rounded.deviation == 0.0
    assert Moments().merge(Moments()) == Moments()


def test_a_merged_summary_is_that_of_the_joined_table():
    columns = {
        "x": ["1", "2.5", "NA", "4", "5", "-3", "7", "8"],
        "c": ["a", None, "b", "a", "c", "c", "a", "b"],
        "y": ["0", "1", "1", None, "1", "0", "1", "0"],
    }
    merged = merge(summaries(site=list("BAABCABC"), **columns))
    (joined,) = summaries(site=["all"] * 8, **columns)
    for field in ("rows", "used", "missing", "levels", "classes", "features", "absent", "extra"):
        assert getattr(merged, field) == getattr(joined, field), field
    assert (merged.rows, merged.used, merged.missing) == (8, 7, {"x": 1, "c": 1})
    assert merged.levels == {"c": {"a": 2, "b": 2, "c": 2}}
    assert merged.classes == {"0": 3, "1": 4}
    np.testing.assert_allclose(merged.moments["x"].mean, np.mean([1, 2.5, 5, -3, 7, 8]), rtol=1e-15)


def test_the_merge_does_not_depend_on_who_reports_first():
    rng = np.random.default_rng(1)
    parts = summaries(site=list("ABCDE") * 9, x=rng.normal(size=45), c=["u", "v", "w"] * 15, y=[0, 1, 1] * 15)
    assert merge(parts) == merge(parts[::-1]) == merge(iter(parts))


def test_a_summary_crosses_as_json_without_loss():
    rng = np.random.default_rng(2)
    for summary in summaries(site=list("AAB"), x=rng.normal(size=3) / 3, c=["ü", "b", "b"], y=[0, 1, 1]):
        sent = json.dumps(summary.to_dict())
        assert Summary.from_dict(json.loads(sent)) == summary
        assert not set(json.loads(sent)) - set(Summary.model_fields)


def test_what_arrives_is_checked():
    (summary,) = summaries(site=["A", "A"], x=[1, 2], c=["a", "b"], y=[0, 1])
    value = summary.to_dict()
    with pytest.raises(ValueError, match=r"from site A: used: .*'many'"):
        Summary.from_dict(value | {"used": "many"}, source="from site A")
    with pytest.raises(ValueError, match=r"Summary: moments\.x\.mean: .*nan"):
        Summary.from_dict(value | {"moments": {"x": {"count": 1, "mean": float("nan"), "m2": 0.0}}})
    with pytest.raises(ValueError, match=r"rows_of_patients: Extra"):
        Summary.from_dict(value | {"rows_of_patients": []})


def test_summaries_that_do_not_belong_together_are_refused():
    a, b = summaries(site=["A", "B"], x=[1, 2], c=["a", "b"], y=[0, 1])
    with pytest.raises(ValueError, match="two summaries come from site 'A'"):
        merge([a, b, a])
    with pytest.raises(ValueError, match="no site sent"):
        merge([])
    other = SCHEMA.model_copy(update={"features": {"x": Number(fill=0.0), "c": Category()}})
    with pytest.raises(ValueError, match=r"sites 'A' and 'B' used schemas that differ"):
        merge([a, *summaries(other, site=["B"], x=[1], c=["a"], y=[0])])


def test_four_features_against_five_stop_with_both_lists():
    five = {name: Number() for name in "abcde"}
    schema = Schema(target=NumberTarget(name="y"), features=five)
    short = Schema(target=NumberTarget(name="y"), features={name: Number() for name in "abcd"})
    data = {name: [1.0, 2.0] for name in "abcdey"}
    (a,) = summaries(schema, site=["A", "A"], **data)
    (b,) = summaries(short, site=["B", "B"], **data)
    lists = r"5 \['a', 'b', 'c', 'd', 'e'\] and 4 \['a', 'b', 'c', 'd'\]"
    with pytest.raises(ValueError, match=f"sites 'A' and 'B' have different features: {lists}"):
        merge([b, a])
    del data["e"]
    with pytest.raises(ValueError, match="site") as caught:
        summaries(schema, site=["B", "B"], **data)
    for part in (
        "site 'B'",
        "lacks columns ['e']",
        "5 columns are ['a', 'b', 'c', 'd', 'y']",
        "['a', 'b', 'c', 'd', 'e']",
    ):
        assert part in str(caught.value)


def test_values_too_large_for_a_variance_are_refused_by_name():
    with pytest.raises(ValueError, match=r"table \(site 'A'\), column 'x': values up to 1e\+300 are too large"):
        summaries(site=["A", "A"], x=[1e300, 1.0], c=["a", "b"], y=[0, 1])
