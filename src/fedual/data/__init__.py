"""Getting data into `Clients`: a user's own, the data sets the package knows, generators and partitioners."""

from fedual.data import partition, synthetic
from fedual.data.entry import Baseline, Entry
from fedual.data.readers import from_arrays, from_frame, from_table, from_torch
from fedual.data.registry import Dataset, describe, load, names

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
    "partition",
    "synthetic",
]
