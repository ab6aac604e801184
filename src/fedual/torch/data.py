"""The clients' data as tensors: pairs, arrays or data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from fedual.clients import Clients

__all__ = ["Rows", "client_rows"]


class Rows:
    """One client's samples.

    Args:
        data: a pair (X, y) with n_k rows each, or a map-style data set of such pairs.
        name: the client.
        dtype: what floating-point inputs and targets are cast to.
        device: where the module lives.

    Raises:
        ValueError: no rows, or unequal numbers of them; the client is named.
    """

    def __init__(self, data: Any, name: str, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.dataset: Any = None
        if isinstance(data, TensorDataset):
            data = data.tensors
        if isinstance(data, tuple | list) and len(data) == 2:
            self.pair = tuple(self._cast(torch.as_tensor(part)) for part in data)
            lengths = {len(part) for part in self.pair}
            if len(lengths) != 1:
                raise ValueError(f"client {name!r}: X has {len(self.pair[0])} rows and y has {len(self.pair[1])}.")
            self.count = lengths.pop()
        elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            self.dataset, self.count = data, len(data)
        else:
            raise ValueError(
                f"client {name!r}: expected a pair (X, y) or a data set with a length, got {type(data).__name__}."
            )
        if self.count == 0:
            raise ValueError(f"client {name!r} has no rows, so its loss (a mean over rows) is undefined. Remove it.")

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

    def take(self, indices: Tensor | range) -> tuple[Tensor, Tensor]:
        """The rows at `indices`, inputs and targets."""
        if self.dataset is None:
            if isinstance(indices, range):
                return tuple(part[indices.start : indices.stop] for part in self.pair)  # type: ignore[return-value]
            return tuple(part[indices] for part in self.pair)  # type: ignore[return-value]
        x, y = default_collate([self.dataset[int(i)] for i in indices])
        return self._cast(x), self._cast(y)


def client_rows(
    clients: Clients | Mapping[str, Any] | Sequence[Any], dtype: torch.dtype, device: torch.device
) -> tuple[tuple[str, ...], list[Rows]]:
    """Names and samples of all clients, from any of the forms that `TorchProblem` takes."""
    if isinstance(clients, Clients):
        named = dict(zip(clients.names, zip(clients.features, clients.targets, strict=True), strict=True))
    elif isinstance(clients, Mapping):
        named = dict(clients)
    elif isinstance(clients, Sequence) and not isinstance(clients, str):
        named = {f"client {k}": data for k, data in enumerate(clients)}
    else:
        raise TypeError(f"clients must be fedual.data clients, a mapping by name, or a sequence, not {type(clients)}.")
    if not named:
        raise ValueError("no client is given: there is nothing to learn from.")
    bad = [name for name in named if not isinstance(name, str) or not name.strip()]
    if bad:
        raise ValueError(f"client name {bad[0]!r} must be a non-empty string.")
    return tuple(named), [Rows(data, name, dtype, device) for name, data in named.items()]
