"""Getting data into `Clients`: a user's own, the data sets the package knows, generators and partitioners."""

from fedual.data.readers import from_arrays, from_frame, from_table, from_torch
from fedual.data.registry import Baseline, Dataset, Entry, describe, load, names

__all__ = [
    "Baseline",
    "Dataset",
    "Entry",
    "describe",
    "from_arrays",
    "from_frame",
    "from_table",
    "from_torch",
    "load",
    "names",
]
