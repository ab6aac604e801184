"""Images without natural silos: handwritten digits and pieces of clothing, partitioned by label."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from fedual.clients import Clients
from fedual.data.partition import dirichlet

__all__ = ["read_digits", "read_idx", "read_mnist"]

_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | Path) -> np.ndarray:
    """Read a file in the IDX format of the MNIST distribution, gzip-compressed or not.

    Two zero bytes, a byte for the type, a byte for the number of axes, then per axis its length and at last the
    values, all big-endian.

    Raises:
        ValueError: the file is not in that format or was cut short.
    """
    raw = Path(path).read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES or len(raw) < 4 + 4 * raw[3]:
        raise ValueError(f"{path} is not an IDX file.")
    dtype, axes = np.dtype(_IDX_TYPES[raw[2]]), raw[3]
    shape = tuple(int(length) for length in np.frombuffer(raw, ">u4", axes, 4))
    expected = 4 + 4 * axes + int(np.prod(shape)) * dtype.itemsize
    if len(raw) != expected:
        raise ValueError(f"{path} has {len(raw)} bytes where its header announces {expected}; it was cut short.")
    return np.frombuffer(raw, dtype, offset=4 + 4 * axes).reshape(shape).astype(dtype.newbyteorder("="))


def read_mnist(folder: Path) -> Clients:
    """The 60,000 training images of MNIST or Fashion-MNIST: float32 rows of 784 grey values in [0, 1].

    100 clients by `partition.dirichlet` with alpha = 0.5 and seed 0. The files `t10k-...` of the official test set
    beside them are left to the user (`read_idx`).

    Raises:
        FileNotFoundError: the folder does not hold the two files.
        ValueError: a file is damaged.
    """
    images, labels = (read_idx(_either(folder / f"train-{what}-ubyte")) for what in ("images-idx3", "labels-idx1"))
    x = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return dirichlet(labels, clients=100, alpha=0.5, seed=0).clients(x, labels.astype(np.int64))


def read_digits(folder: Path) -> Clients:
    """The 1,797 images of handwritten digits of 8 x 8 pixels inside scikit-learn: rows of 64 grey values in [0, 1].

    10 clients by `partition.dirichlet` with alpha = 0.5 and seed 0.
    """
    table = np.loadtxt(folder / "digits.csv.gz", delimiter=",")
    labels = table[:, -1].astype(np.int64)
    return dirichlet(labels, clients=10, alpha=0.5, seed=0).clients(table[:, :-1] / 16, labels)


def _either(path: Path) -> Path:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{path} does not exist, nor does {path.name}.gz.")
