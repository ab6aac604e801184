"""One transform for all sites: what it makes of each column, and of tables it has never seen."""

import json

import numpy as np
import polars as pl
import pytest

from fedual.tables import (
    Category,
    ClassTarget,
    Number,
    NumberTarget,
    Report,
    Schema,
    SiteTable,
    Transform,
    split_sites,
    summarize,
)


def table(site="A", **columns):
    frame = pl.DataFrame(columns)
    return SiteTable(site, f"{site}.csv", frame, np.arange(1, len(frame) + 1))


def learn(schema, *tables):
    return Transform.fit(schema, [summarize(each, schema) for each in tables])


def schema(**features):
    options = {name: features.pop(name) for name in ("absent", "extra", "standardize", "missing") if name in features}
    return Schema(target=features.pop("target", NumberTarget(name="y")), features=features, **options)


def test_text_and_typed_columns_give_the_same_design():
    declared = schema(target=ClassTarget(name="y"), x=Number(missing=("-1",)), c=Category(), b=Category())
    text = table(x=["1", " 2.50", "-1.0", "NA", "1e1"], c=["1.0", "2", "", "1", "3"],
                 b=["true", "false", "true", "true", "false"], y=["1", "0", "1.0", "0", "0"])  # fmt: skip
    typed = table(x=[1.0, 2.5, -1.0, np.nan, 10.0], c=[1.0, 2.0, None, 1.0, 3.0],
                  b=[True, False, True, True, False], y=[1, 0, 1, 0, 0])  # fmt: skip
    by_text, by_type = learn(declared, text), learn(declared, typed)
    assert by_text == by_type
    for a, b in zip(by_text.apply(text), by_type.apply(typed), strict=True):
        np.testing.assert_array_equal(a, b)
    assert by_text.columns == ("x", "c=2", "c=3", "b=true")
    assert by_text.apply(text)[1].tolist() == [1, 0, 1, 0, 0]


def test_standardizing_can_be_left_out():
    declared = schema(x=Number(), standardize=False)
    one = table(x=[1.0, None, 4.0], y=[0, 0, 0])
    np.testing.assert_array_equal(learn(declared, one).features(one)[:, 0], [1.0, 2.5, 4.0])


def test_a_declared_fill_is_part_of_the_data():
    declared = schema(x=Number(fill=0), c=Category(fill="unknown"), standardize=False)
    one = table(x=[4.0, None], c=["a", None], y=[0, 0])
    transform = learn(declared, one)
    assert transform.columns == ("x", "c=unknown")
    np.testing.assert_array_equal(transform.features(one), [[4.0, 0.0], [0.0, 1.0]])


def test_levels_are_declared_recoded_rare_or_other():
    declared = schema(
        declared=Category(categories=("M", "F", "X"), recode={"male": "M"}),
        rare=Category(minimum=2),
        ordered=Category(),
    )
    one = table(
        declared=["male", "F", "M", "weird", "odd", None],
        rare=["a", "a", "b", "b", "c", "d"],
        ordered=["10", "9", "10", "9", "10", "9"],
        y=[0.0] * 6,
    )
    summary = summarize(one, declared)
    assert summary.levels["declared"] == {"M": 2, "F": 1, "other": 2}, "undeclared text stays at the site"
    transform = Transform.fit(declared, [summary])
    assert transform.columns == ("declared=F", "declared=other", "rare=b", "rare=other", "ordered=10")
    expected = [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [0, 0, 1, 0, 1], [0, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]
    np.testing.assert_array_equal(transform.features(one), expected)


def test_a_column_absent_at_a_site_is_refused_filled_or_dropped():
    full, short = table("A", x=[1.0, 3.0], z=[5.0, 9.0], y=[0, 1]), table("B", x=[2.0, 6.0], y=[1, 1])
    columns = {"x": Number(), "z": Number()}
    with pytest.raises(ValueError, match=r"B\.csv \(site 'B'\) lacks columns \['z'\].*absent = 'fill'"):
        learn(schema(**columns), full, short)
    filled = learn(schema(**columns, absent="fill"), full, short)
    assert filled.columns == ("x", "z")
    np.testing.assert_array_equal(filled.features(short)[:, 1], [0.0, 0.0])
    dropped = learn(schema(**columns, absent="drop"), full, short)
    assert dropped.columns == ("x",)
    assert dropped.dropped == {"z": "absent at site 'B'"}
    np.testing.assert_array_equal(dropped.features(short), filled.features(short)[:, :1])
    with pytest.raises(ValueError, match=r"C\.csv \(site 'C'\) lacks columns \['x'\] of the fitted design"):
        dropped.features(table("C", z=[1.0]))


def test_an_undeclared_column_is_refused_when_the_schema_says_so():
    with pytest.raises(ValueError, match=r"A\.csv \(site 'A'\) has undeclared columns \['q'\].*\['x', 'q', 'y'\]"):
        learn(schema(x=Number(), extra="refuse"), table(x=[1.0], q=[1], y=[0]))


DECLARED = schema(
    target=ClassTarget(name="y", classes=("no", "yes")),
    x=Number(missing=("-1",)),
    full=Number(fill="refuse"),
    c=Category(fill="refuse"),
)
GOOD = {"x": ["1", "2", "3"], "full": ["1", "2", "4"], "c": ["a", "b", "a"], "y": ["no", "yes", "no"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": ["1", "NA", "12 mg"]}, r"column 'x', row 3: '12 mg' is not a finite number \(1 such rows\)"),
        ({"x": ["1", "inf", "2"]}, r"column 'x', row 2: 'inf' is not a finite number"),
        ({"x": ["1", "1,5", "1,5"]}, r"column 'x', row 2: '1,5' is not a finite number \(2 such rows\)"),
        ({"x": pl.Series(["2020-01-01"] * 3).str.to_date()}, r"column 'x': type Date is not a number"),
        ({"x": [[1], [2], [3]]}, r"column 'x': type List\(Int64\) is not a number"),
        ({"c": [[1], [2], [3]]}, r"column 'c': type List\(Int64\) is not a category"),
        ({"full": ["1", "", "NA"]}, r"column 'full', row 2: the value is missing \(2 such rows\)"),
        ({"c": ["a", "b", None]}, r"column 'c', row 3: the value is missing"),
        ({"y": ["no", "yes", "maybe"]}, r"column 'y', row 3: 'maybe' is not one of the labels \['no', 'yes'\]"),
    ],
)
def test_a_bad_cell_is_refused_with_file_column_and_row(change, message):
    transform, bad = learn(DECLARED, table(**GOOD)), table("B", **(GOOD | change))
    with pytest.raises(ValueError, match=rf"^B\.csv \(site 'B'\), {message}"):
        summarize(bad, DECLARED)
    with pytest.raises(ValueError, match=rf"^B\.csv \(site 'B'\), {message}"):
        transform.apply(bad)


def test_rows_keep_the_numbers_of_the_file_when_others_are_dropped():
    frame = pl.DataFrame({"h": ["A", "B", "B", "B"], "x": ["1", "2", "3", "bad"], "y": ["1", "", "1", "2"]})
    _, b = split_sites(frame, "h", source="all.csv")
    with pytest.raises(ValueError, match=r"all\.csv \(site 'B'\), column 'x', row 4: 'bad'"):
        summarize(b, schema(x=Number()))


@pytest.mark.parametrize(
    ("declared", "tables", "message"),
    [
        (
            schema(x=Number()),
            [table(x=[1.0], y=[None]), table("B", x=[1.0], y=[""])],
            r"no row has a target 'y': 0 of 2",
        ),
        (
            schema(x=Number(), z=Number()),
            [table(x=[1.0, 2.0], z=["", "NA"], y=[0, 1])],
            "feature 'z' has no value.*site 'A'",
        ),
        (schema(x=Category()), [table(x=["", None], y=[0, 1])], "feature 'x' has no value"),
        (schema(x=Number()), [table(x=[1.0, 1.0], y=[0, 1])], r"no feature is left .*constant \(1\) at every site"),
        (schema(x=Number(), target=ClassTarget(name="y")), [table(x=[1, 2], y=["a", "a"])], r"one class only .*'a': 2"),
        (
            schema(x=Number(factors={"Z": 2})),
            [table(x=[1, 2], y=[0, 1])],
            r"'x' has factors for sites \['Z'\].*\['A'\]",
        ),
    ],
)
def test_what_gives_nothing_to_learn_from_is_refused(declared, tables, message):
    with pytest.raises(ValueError, match=message):
        learn(declared, *tables)


def test_a_schema_that_the_sites_did_not_use_is_refused():
    used, edited = schema(x=Number()), schema(x=Number(fill=0.0))
    with pytest.raises(ValueError, match=r"the sites \['A'\] used another schema"):
        Transform.fit(edited, [summarize(table(x=[1.0, 2.0], y=[0, 1]), used)])


def test_prediction_handles_unseen_categories_and_an_all_missing_column(caplog):
    caplog.set_level("INFO", logger="fedual")
    declared = schema(
        target=ClassTarget(name="y"),
        x=Number(),
        c=Category(),
        d=Category(minimum=2),
    )
    train = table(x=[1.0, 3.0, 5.0, 7.0], c=["a", "b", "b", "a"], d=["u", "u", "v", "w"], y=[0, 1, 1, 0])
    transform = Transform.from_dict(json.loads(json.dumps(learn(declared, train).to_dict())))
    assert transform.columns == ("x", "c=b", "d=other")
    new = table("N", c=["b", "zzz", None], x=["", "NA", None], d=["u", "q", None])
    # The mean is 0 after standardizing; "a" is the first of the two most frequent levels.
    np.testing.assert_array_equal(transform.features(new), [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert "N.csv (site 'N'), column 'c', row 2: 'zzz' is not one of the levels ['a', 'b'] (1 such rows)" in caplog.text
    assert "counts as 'a'" in caplog.text
    assert "counts as 'other'" in caplog.text
    with pytest.raises(ValueError, match=r"column 'y', row 1: '2' is not one of the labels \['0', '1'\]"):
        transform.apply(table("N", x=[1.0], c=["a"], d=["u"], y=["2"]))


def test_an_unseen_category_is_refused_when_nothing_may_stand_in_for_it():
    transform = learn(schema(x=Category(fill="refuse")), table(x=["a", "b"], y=[0, 1]))
    with pytest.raises(ValueError, match=r"N\.csv \(site 'N'\), column 'x', row 1: 'c' is not one of the levels"):
        transform.features(table("N", x=["c"]))


def test_units_of_a_site_that_was_not_in_training_are_pointed_out(caplog):
    declared = schema(x=Number(factors={"B": 10.0}), standardize=False)
    transform = learn(declared, table("A", x=[10.0, 20.0], y=[0, 1]), table("B", x=[1.0, 3.0], y=[0, 1]))
    np.testing.assert_array_equal(transform.features(table("B", x=[1.5])), [[15.0]])
    assert not caplog.records
    np.testing.assert_array_equal(transform.features(table("new", x=[1.5])), [[1.5]])
    assert "site 'new' is not one of ['A', 'B'], so columns ['x']" in caplog.text


def test_the_report_says_what_became_of_everything():
    declared = Schema(
        target=ClassTarget(name="y"),
        features={"x": Number(), "flat": Number(), "c": Category()},
        ignore={"id": "an identifier"},
    )
    tables = [
        table("B", x=[2.0, 2.0, 1.0], flat=[7, 7, 7], c=["a", "a", "b"], y=[1, 1, None], id=[1, 2, 3]),
        table("A", x=[None, None], flat=[7, 7], c=["a", "b"], y=[0, 1], id=[1, 2], more=[0, 0]),
        table("C", x=[1.0], flat=[7], c=["b"], y=[1], id=[1]),
        table("D", x=[1.0], flat=[8], c=["b"], y=[""], id=[1]),
    ]
    summaries = [summarize(each, declared) for each in tables]
    report = Report.of(Transform.fit(declared, summaries), summaries)
    assert [(site.site, site.rows, site.used) for site in report.sites] == [
        ("A", 2, 2), ("B", 3, 2), ("C", 1, 1), ("D", 1, 0),
    ]  # fmt: skip
    assert report.rows_without_target == {"B": 1, "D": 1}
    assert report.dropped_sites == {"D": "none of its 1 rows has a target 'y'"}
    assert report.dropped_columns == {
        "flat": "constant (7) at every site",
        "id": "ignored: an identifier",
        "more": "not in the schema, found at site 'A'",
    }
    assert report.warnings == (
        "column 'flat' is dropped from the design: constant (7) at every site",
        "column 'x' has no value and is filled at site 'A'",
        "column 'x' is constant (zero variance) at site 'B'",
        "column 'c' has one category at site 'B'",
        "target 'y' has one class at site 'B'",
    )
    assert report.sites[0].missing == {"x": 2}
    assert report.sites[0].extra == ("more",)
    assert json.loads(json.dumps(report.to_dict()))["sites"][1]["classes"] == {"1": 2}
    assert str(report).startswith("5 of 7 rows and 3 of 4 sites are used.\nrows without a target at site 'B': 1")
