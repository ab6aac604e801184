"""Files become one table per site, or an error that names file, column and row."""

import numpy as np
import polars as pl
import pytest

from fedual.tables import read_sites


def write(folder, **files):
    """Write name=text as name.csv and return the paths."""
    paths = [folder / f"{name}.csv" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return paths


def test_the_same_table_in_every_format_and_separator(tmp_path):
    frame = pl.DataFrame({"age": [60.0, None, 80.5], "sex": ["F", "M", None]})
    frame.write_parquet(tmp_path / "parquet.parquet")
    frame.write_ipc(tmp_path / "arrow.arrow")
    frame.write_ipc(tmp_path / "compressed.feather", compression="lz4")
    frame.write_csv(tmp_path / "comma.csv")
    frame.write_csv(tmp_path / "semicolon.csv", separator=";", include_bom=True)
    frame.write_csv(tmp_path / "tab.tsv", separator="\t", line_terminator="\r\n")
    for table in read_sites(sorted(tmp_path.iterdir())):
        assert table.frame["age"].cast(pl.Float64).to_list() == [60.0, None, 80.5], table.source
        assert table.frame["sex"].to_list() == ["F", "M", None], table.source
        assert table.rows.tolist() == [1, 2, 3]


def test_sites_are_files_or_given_or_a_column(tmp_path):
    a, b = write(tmp_path, a="x,h\n1,p\n2,q\n3,p\n", b="x,h\n4,r\n")
    assert [table.site for table in read_sites([a, b])] == ["a", "b"]
    assert [table.site for table in read_sites({"north": a, "south": str(b)})] == ["north", "south"]
    split = read_sites([a, b], site="h")
    assert [(t.site, t.frame["x"].to_list(), t.rows.tolist()) for t in split] == [
        ("p", ["1", "3"], [1, 3]),
        ("q", ["2"], [2]),
        ("r", ["4"], [1]),
    ]
    assert all("h" not in table.frame.columns for table in split)


def test_blank_lines_and_quoted_line_breaks_keep_the_row_numbers(tmp_path):
    (path,) = write(tmp_path, a='x,y\n"1\n2",a\n\n3,b\n\n')
    (table,) = read_sites(path)
    assert table.frame["x"].to_list() == ["1\n2", "3"]
    assert table.rows.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("files", "site", "message"),
    [
        ({"a": "x,h\n1,p\n", "b": "x\n2\n"}, "h", r"b\.csv has no column 'h' to name the site .*\['x'\]"),
        ({"a": "x,h\n1,p\n2,\n3, \n"}, "h", r"a\.csv, column 'h', row 2: no site is given \(2 such rows\)"),
        ({"a": "x,h\n1,p\n", "b": "x,h\n2,q\n3, p\n"}, "h", r"site 'p' appears twice: .*a\.csv and .*b\.csv"),
        ({"a": "x,y\n1,2\n3\n"}, None, r"a\.csv, row 2 \(line 3\) has 1 values for 2 columns"),
        ({"a": "x,y\n1,2\n3,4,5\n"}, None, r"a\.csv, row 2 \(line 3\) has 3 values for 2 columns"),
        ({"a": "x, x\n1,2\n"}, None, r"a\.csv: columns \['x'\] appear twice"),
        ({"a": ""}, None, r"a\.csv is empty"),
        ({"a": "x,y\n"}, None, r"a\.csv has no rows"),
        ({"a": b"x,y\n1,\xe9\n"}, None, r"a\.csv is not CSV in UTF-8"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path, files, site, message):
    with pytest.raises(ValueError, match=message):
        read_sites(write(tmp_path, **files), site=site)


def test_a_site_needs_a_name_of_its_own(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    twins = [write(folder, data="x\n1\n")[0] for folder in folders]
    with pytest.raises(ValueError, match=r"site 'data' appears twice: .*one.*two"):
        read_sites(twins)
    with pytest.raises(ValueError, match="name is blank"):
        read_sites({"": twins[0]})
    with pytest.raises(ValueError, match="no files"):
        read_sites([])


def test_two_sites_never_get_the_same_rows(tmp_path):
    (path,) = write(tmp_path, all="h,x\nA,1\nB,2\nA,3\n")
    with pytest.raises(ValueError, match=r"sites 'A' and 'B' would both get all rows of .*all\.csv"):
        read_sites({"A": path, "B": tmp_path / "." / "all.csv"})
    a, b = read_sites({"A": path, "B": path}, site="h")
    assert (a.site, a.frame["x"].to_list(), b.site, b.frame["x"].to_list()) == ("A", ["1", "3"], "B", ["2"])
    with pytest.raises(ValueError, match=r"all\.csv has no row with h = 'C'; its sites are \['A', 'B'\]"):
        read_sites({"C": path}, site="h")


def test_what_cannot_be_a_table_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read"):
        read_sites(tmp_path / "a.parquet")
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"unknown suffix '\.xlsx'"):
        read_sites(tmp_path / "a.xlsx")
    with pytest.raises(FileNotFoundError, match="absent"):
        read_sites(tmp_path / "absent.csv")


def test_rows_can_be_selected_without_losing_their_numbers(tmp_path):
    (table,) = read_sites(write(tmp_path, a="x\n1\n2\n3\n"))
    kept = table.where(np.array([False, True, True]))
    assert kept.at("x", 1).endswith("a.csv (site 'a'), column 'x', row 3")
    assert len(table.where(np.zeros(3, bool))) == 0
