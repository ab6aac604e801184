"""Data that many tests share: compiled programs are reused where shapes and methods agree."""

import gc
from collections.abc import Iterator

import jax
import numpy as np
import pytest

import fedual as fd
from references import ragged_tables


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Compiled programs hold memory maps, of which a process has 65,530 on Linux; the whole suite would use them up."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def regression():
    """Least squares over three clients of 5, 9 and 12 rows with 3 features."""
    return fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays(ragged_tables("normal")))


@pytest.fixture(scope="session")
def classification():
    """Logistic loss over three clients of 5, 9 and 12 rows with 3 features."""
    return fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(ragged_tables("binary")))


@pytest.fixture
def rng():
    return np.random.default_rng(7)
