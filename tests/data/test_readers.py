"""Users' own data: what comes out is what went in, and a row without a site is never guessed a home."""

import numpy as np
import polars as pl
import pytest

from fedual import data

X = np.arange(10.0).reshape(5, 2)
Y = np.array([0, 1, 0, 1, 1])


def columns_of(kind):
    """The same table as a Polars frame, a pandas frame, a PyArrow table or a Hugging Face data set."""
    table = {"age": [50, 61, 47], "dose": [0.5, 1.5, 2.5], "ill": [0, 1, 0], "hospital": ["B", "A", "B"]}
    if kind == "polars":
        return pl.DataFrame(table)
    if kind == "pandas":
        return pytest.importorskip("pandas", reason="pandas is optional").DataFrame(table, index=[7, 8, 9])
    if kind == "pyarrow":
        return pytest.importorskip("pyarrow", reason="PyArrow is optional").table(table)
    return pytest.importorskip("datasets", reason="Hugging Face datasets is optional").Dataset.from_dict(table)


class DuckDataset:
    """What a Hugging Face data set offers to whoever does not import its package."""

    def __init__(self, table):
        self.column_names, self._table = list(table), table

    def __getitem__(self, name):
        return self._table[name]


def test_from_table_keeps_every_row_once_and_in_order():
    clients = data.from_table(X, Y, [10, 9, 10, 9, 100])
    assert clients.names == ("9", "10", "100")
    np.testing.assert_array_equal(clients.features[0], X[[1, 3]])
    np.testing.assert_array_equal(clients.features[1], X[[0, 2]])
    np.testing.assert_array_equal(clients.targets[2], Y[[4]])


def test_from_arrays_takes_ragged_sizes_from_one_row_upwards():
    clients = data.from_arrays([(X, Y), (X[:1], Y[:1])], names=["large", "tiny"], columns=["u", "v"])
    assert clients.sizes.tolist() == [5, 1]
    assert clients.columns == ("u", "v")


def test_a_site_without_rows_is_left_out_only_when_asked(caplog):
    pairs = [(X[:0], Y[:0]), (X, Y)]
    with pytest.raises(ValueError, match="client 'a' has no rows"):
        data.from_arrays(pairs, names=["a", "b"])
    assert data.from_arrays(pairs, names=["a", "b"], empty="skip").names == ("b",)
    assert "client 'a' has no rows and is left out" in caplog.text
    with pytest.raises(ValueError, match="no client has any rows"):
        data.from_arrays(pairs[:1], names=["a"], empty="skip")


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (["a", None, "b", "b", "a"], ValueError, r"1 of 5 rows have no site \(the first is row 1: None\)"),
        (["a", "b", float("nan"), "b", "a"], ValueError, r"row 2: nan"),
        (np.array([1.0, 2.0, np.nan, np.nan, 1.0]), ValueError, r"2 of 5 rows have no site"),
        (["", "", "", "", ""], ValueError, r"5 of 5 rows have no site"),
        (["a", " ", "b", "b", "a"], ValueError, r"row 1: ' '"),
        (np.array(["a", "nan", "b", "b", "a"]), ValueError, r"row 1: np.str_\('nan'\)|row 1: 'nan'"),
        (["a", "b ", "b", "b", "a"], ValueError, r"sites 'b ' and 'b' would be two clients that look the same"),
        ([1, "1", 2, 2, 2], ValueError, r"sites 1 and '1' would be two clients that look the same"),
        ([1.5, 1.5, 2.0, 2.0, 2.0], ValueError, r"row 0 has the site 1.5"),
        (["a", "b"], ValueError, r"X has shape \(5, 2\).*there are 2 sites"),
        ("a", TypeError, r"not the single value 'a'"),
        (None, TypeError, r"not the single value None"),
    ],
)
def test_absent_or_ambiguous_sites_are_errors_never_everyones_rows(groups, error, message):
    with pytest.raises(error, match=message):
        data.from_table(X, Y, groups)


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], ["a"], ["a", None]])
def test_two_sites_need_two_names(names):
    with pytest.raises(ValueError, match="name"):
        data.from_arrays([(X, Y), (X, Y)], names=names)


@pytest.mark.parametrize("kind", ["polars", "pandas", "pyarrow", "datasets"])
def test_from_frame_reads_every_kind_of_table_alike(kind):
    clients = data.from_frame(columns_of(kind), target="ill", site="hospital")
    assert clients.names == ("A", "B")
    assert clients.columns == ("age", "dose")
    np.testing.assert_array_equal(clients.features[1], [[50, 0.5], [47, 2.5]])
    np.testing.assert_array_equal(clients.targets[0], [1])


def test_a_column_of_arrays_keeps_its_shape_alone_and_is_flattened_beside_others():
    table = {"image": [np.full((2, 2), k) for k in range(3)], "age": [1, 2, 3], "y": [0, 1, 0], "s": ["a", "b", "a"]}
    alone = data.from_frame(DuckDataset(table), target="y", site="s", features=["image"])
    assert alone.features[0].shape == (2, 2, 2)
    assert alone.columns is None
    beside = data.from_frame(DuckDataset(table), target="y", site="s", features=["age", "image"])
    np.testing.assert_array_equal(beside.features[0], [[1, 0, 0, 0, 0], [3, 2, 2, 2, 2]])


@pytest.mark.parametrize("kind", ["polars", "pandas"])
@pytest.mark.parametrize(
    ("arguments", "change", "error", "message"),
    [
        ({"site": "ward"}, {}, KeyError, "no column 'ward'; its columns are 'age', 'dose', 'ill', 'hospital'"),
        ({"target": "sick"}, {}, KeyError, "no column 'sick'"),
        ({"features": ["age", "weight"]}, {}, KeyError, "no column 'weight'"),
        ({"features": ["age", "ill"]}, {}, ValueError, "must be different columns"),
        ({"features": []}, {}, ValueError, "no feature is left"),
        ({}, {"hospital": ["A", None, "B"]}, ValueError, "1 of 3 rows have no site"),
        ({}, {"age": [50, None, 47]}, ValueError, "column 'age' has 1 missing values, the first at site 'A', row 1"),
        ({}, {"ill": [0.0, 1.0, float("nan")]}, ValueError, "column 'ill' has 1 missing values, the first at site 'B'"),
        ({}, {"dose": ["low", "high", "low"]}, ValueError, "column 'dose' holds values like 'low', not numbers"),
    ],
)
def test_from_frame_names_what_is_wrong(kind, arguments, change, error, message):
    frame = columns_of(kind)
    frame = (
        frame.assign(**change)
        if kind == "pandas"
        else frame.with_columns(**{k: pl.Series(v) for k, v in change.items()})
    )
    with pytest.raises(error, match=message):
        data.from_frame(frame, **({"target": "ill", "site": "hospital"} | arguments))


@pytest.mark.parametrize("values", [[[1, 2], [3], [4, 5]], [[1, 2], None, [3, 4]]])
def test_arrays_of_different_shapes_in_a_column_are_refused(values):
    frame = DuckDataset({"v": values, "y": [0, 1, 0], "s": ["a", "b", "a"]})
    with pytest.raises(ValueError, match="column 'v' does not hold one number, or arrays of one shape"):
        data.from_frame(frame, target="y", site="s")


def test_columns_of_the_same_name_are_refused():
    frame = DuckDataset({"v": [1, 2], "y": [0, 1], "s": ["a", "b"]})
    frame.column_names = ["v", "v", "y", "s"]
    with pytest.raises(ValueError, match="several columns called 'v'"):
        data.from_frame(frame, target="y", site="s")


def test_a_site_in_text_sorts_as_text_and_a_categorical_is_text():
    frame = pl.DataFrame(
        {"v": [1, 2, 3], "y": [0, 1, 0], "s": ["10", "9", "10"]}, schema_overrides={"s": pl.Categorical}
    )
    assert data.from_frame(frame, target="y", site="s").names == ("10", "9")


def test_not_a_table_is_refused():
    with pytest.raises(TypeError, match="ndarray is not a table of named columns"):
        data.from_frame(X, target="ill", site="hospital")


def test_a_dictionary_of_splits_says_what_to_do():
    splits = DuckDataset({"y": [1]})
    splits.column_names = {"train": ["y"], "test": ["y"]}
    with pytest.raises(TypeError, match="Select one of its splits first"):
        data.from_frame(splits, target="y", site="s")


def test_from_torch_reads_indexable_pairs():
    pairs = [(x, y) for x, y in zip(X, Y, strict=True)]
    clients = data.from_torch({"a": pairs[:2], "b": pairs[2:]})
    np.testing.assert_array_equal(clients.features[1], X[2:])
    np.testing.assert_array_equal(clients.targets[0], Y[:2])
    assert data.from_torch([pairs, pairs]).names == ("client 0", "client 1")


def test_from_torch_on_real_data_sets():
    torch = pytest.importorskip("torch", reason="PyTorch is optional")
    whole = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    parts = data.partition.iid(len(whole), clients=2, seed=1)
    clients = data.from_torch([torch.utils.data.Subset(whole, rows.tolist()) for rows in parts.rows])
    for k, rows in enumerate(parts.rows):
        np.testing.assert_array_equal(clients.features[k], X[rows])
        np.testing.assert_array_equal(clients.targets[k], Y[rows])


@pytest.mark.parametrize(
    ("datasets", "names", "error", "message"),
    [
        ({"a": iter([(X[0], 1)])}, None, TypeError, "client 'a': .* has no length or is not indexable"),
        ({"a": [X[0]]}, None, TypeError, r"client 'a': every item of the data set must be a pair \(x, y\)"),
        ({"a": []}, None, ValueError, "client 'a' has no rows"),
        ({"a": [(X[0], 1)]}, ["b"], ValueError, "leave out `names`"),
        ([[(X[0], 1)]], ["a", "b"], ValueError, "2 names were given for 1 data sets"),
    ],
)
def test_from_torch_names_what_is_wrong(datasets, names, error, message):
    with pytest.raises(error, match=message):
        data.from_torch(datasets, names)
