"""The schema survives its TOML form and refuses what contradicts itself, naming the key."""

import polars as pl
import pytest

from fedual.tables import (
    Category,
    ClassTarget,
    Number,
    NumberTarget,
    Schema,
    inspect_files,
    prepare,
    propose,
    read_sites,
    split_sites,
)

FULL = Schema(
    target=ClassTarget(name="died", classes=("no", "yes"), recode={"0": "no"}, note='a "note"'),
    site="hospital",
    absent="fill",
    extra="refuse",
    standardize=False,
    missing=("", "?"),
    features={
        "glucose (mg/dL)": Number(unit="mg/dL", factors={"Site B": 18.016}, missing=("-1",), fill=0.5),
        "sex": Category(categories=("F", "M"), fill="refuse", recode={"männlich": "M", "back\\slash": "F"}),
        "stage": Category(minimum=5),
    },
    ignore={"id": "line\nbreak \x7f\x01"},
)


def test_toml_holds_the_whole_schema():
    assert Schema.from_toml(FULL.to_toml()) == FULL
    small = Schema(target=NumberTarget(name="y"), features={"x": Number()})
    assert Schema.from_toml(small.to_toml()) == small
    assert list(Schema.from_toml(FULL.to_toml()).features) == list(FULL.features)


def test_toml_may_write_categories_and_markers_as_numbers():
    schema = Schema.from_toml(
        '[target]\nkind = "class"\nname = "y"\nclasses = [0, 1.0]\n[features.x]\nkind = "number"\nmissing = [-1]\n'
    )
    assert schema.target.classes == ("0", "1")
    assert schema.features["x"].missing == ("-1",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", r"s\.toml is not valid TOML"),
        ("[features.x]\nkind = 'number'\n", r"s\.toml: target: Field required"),
        ("[target]\nkind = 'number'\nname = 'y'\n[features]\n", "declare at least one"),
        ("[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'numbr'\n", r"features\.x.*'numbr'"),
        ("[target]\nkind = 'number'\nname = 'y'\n[features.y]\nkind = 'number'\n", "'y' is the target"),
        ("[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'number'\nfil = 1\n", r"features\.x.*fil: Extra"),
        ("[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'number'\nfill = 'median'\n", "'median'"),
        (
            "[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'number'\nfactors = {B = 0}\n",
            "site 'B' must be",
        ),
        ("[target]\nkind = 'class'\nname = 'y'\nclasses = ['a']\n[features.x]\nkind = 'number'\n", "at least two"),
        ("[target]\nkind = 'class'\nname = 'y'\nclasses = ['a', 'a']\n[features.x]\nkind = 'number'\n", "twice"),
        (
            "[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'category'\ncategories = ['a']\nfill = 'b'\n",
            r"fill = 'b' must be .*\['a'\]",
        ),
        (
            "[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'number'\n[ignore]\nx = ''\n",
            r"\['x'\] are features",
        ),
        ("site = 'y'\n[target]\nkind = 'number'\nname = 'y'\n[features.x]\nkind = 'number'\n", "both target and site"),
    ],
)
def test_a_bad_schema_is_refused_naming_the_key(text, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_toml(text, source="s.toml")


def rows(**columns):
    return split_sites(pl.DataFrame(columns), "site")


def test_a_proposal_tells_numbers_from_categories_and_identifiers():
    n = 24
    schema = propose(
        rows(
            site=["A"] * 12 + ["B"] * 12,
            patient_id=list(range(n)),
            age=["50", "60.5", "?", "70"] * 6,
            visits=[0, 1, 2, -1] * 6,
            balance=[-3.5, 1.0, 2.0, -1.0] * 6,
            spin=[-1, 1, 1, -1] * 6,
            sex=["F", "M", None, "F"] * 6,
            grade=["10", "9", "x", "y", "z", "q"] * 4,
            city=["Ulm"] * 12 + ["Bonn"] * 12,
            name=[f"n{i}" for i in range(n)],
            empty=[None] * n,
            unit=["mg"] * n,
            glucose=[90.0] * 11 + [95.0] + [5.0] * 11 + [5.2],
            outcome=["no", "yes", "no", None] * 6,
        )
    )
    assert {name: column.kind for name, column in schema.features.items()} == {
        "age": "number", "visits": "number", "balance": "number", "spin": "number",
        "sex": "category", "grade": "category", "glucose": "number",
    }  # fmt: skip
    assert schema.features["age"].missing == ("?",)
    assert schema.features["visits"].missing == ("-1",)
    assert schema.features["balance"].missing == schema.features["spin"].missing == ()
    assert schema.features["sex"].categories == ("F", "M")
    assert "6 of 24 values are missing" in schema.features["sex"].note
    assert "site 'B' and 90 at site 'A'" in schema.features["glucose"].note
    assert schema.target.name == "outcome"
    assert schema.target.classes == ("no", "yes")
    reasons = {"patient_id": "identifier", "city": "tells the site", "name": "24 different", "empty": "no value",
               "unit": "'mg' in every row"}  # fmt: skip
    assert set(schema.ignore) == set(reasons)
    assert all(part in schema.ignore[name] for name, part in reasons.items())


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 1, 1], "class"), ([0.5, 1, 2], "number"), (["a", "b", "c"], "class"), (["0", "1", ""], "class")],
)
def test_the_kind_of_a_target_is_proposed_from_its_values(values, kind):
    tables = rows(site=["A", "A", "B"], x=[1, 2, 3], y=values)
    assert propose(tables, target="y").target.kind == kind


def test_a_proposal_needs_its_target_and_a_shared_column():
    frames = [pl.DataFrame({"site": ["A"], "x": [1]}), pl.DataFrame({"site": ["B"], "z": [1]})]
    tables = [split_sites(frame, "site", source=f"{k}.csv")[0] for k, frame in enumerate(frames)]
    with pytest.raises(ValueError, match=r"no column is in every file: 0\.csv: \['x'\]; 1\.csv: \['z'\]"):
        propose(tables)
    with pytest.raises(ValueError, match=r"table has no column 'q' for the target; it has \['x', 'y'\]"):
        propose(rows(site=["A"], x=[1], y=[1]), target="q")
    with pytest.raises(ValueError, match=r"column 'y' cannot be the target: its only values are \['1'\]"):
        propose(rows(site=["A", "B"], x=[1, 2], y=["1", ""]), target="y")
    with pytest.raises(ValueError, match=r"column 'y' cannot be the target: type List\(Int64\) in table"):
        propose(rows(site=["A", "B"], x=[1, 2], y=[[1], [2]]), target="y")
    with pytest.raises(ValueError, match=r"no column besides the target 'y' can serve"):
        propose(rows(site=["A", "B"], x=[1, 1], y=[1, 2]))


def test_files_run_with_what_inspection_proposes(tmp_path):
    """Sites that differ in columns and order give a schema that they all pass, and a column of one site is ignored."""
    (tmp_path / "A.csv").write_text("sex,age,died\nF,60,0\nM,?,1\nF,70,0\n")
    (tmp_path / "B.csv").write_text("died,ward,age,sex\n1,x,65,U\n0,y,75,F\n1,x,62,M\n")
    files = [tmp_path / "A.csv", tmp_path / "B.csv"]
    schema = Schema.from_toml(inspect_files(files, target="died").to_toml())
    assert schema.ignore == {"ward": "only at site 'B'"}
    prepared = prepare(files, schema)
    assert prepared.clients.columns == ("sex=M", "sex=U", "age", "intercept")
    assert prepared.clients.sizes.tolist() == [3, 3]
    assert [table.site for table in read_sites(files)] == list(prepared.clients.names)
