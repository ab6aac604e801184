"""A module as one vector of what trains, and its buffers apart."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import torch
from torch import Tensor, nn

__all__ = ["Buffers", "FlatModule", "weighted_sum"]

Buffers = dict[str, Tensor]


class FlatModule:
    """A private copy of a module, whose trainable parameters are written and read as one vector.

    Only floating-point parameters that require a gradient are part of the vector; frozen ones keep their values. The
    vector is float64 where a parameter is, else float32: half-precision parameters are computed with as they are, but
    their vectors, duals and sums are not rounded to half precision.

    Args:
        module: its parts' training flags are those of local work: a part in evaluation mode stays so.

    Raises:
        ValueError: nothing to train.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module)
        trained = {n: p for n, p in self.module.named_parameters() if p.requires_grad and p.is_floating_point()}
        if not trained:
            raise ValueError("the module has no floating-point parameter that requires a gradient: nothing can train.")
        self.names, self.parameters = tuple(trained), tuple(trained.values())
        self.sizes = [p.numel() for p in self.parameters]
        self.dimension = sum(self.sizes)
        self.dtype = torch.float64 if any(p.dtype == torch.float64 for p in self.parameters) else torch.float32
        self.input_dtype = self.parameters[0].dtype
        self.device = self.parameters[0].device
        self._modes = [(part, part.training) for part in self.module.modules()]

    def pieces(self, x: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Every trained parameter with its part of the vector x, as a view of x in the parameter's shape."""
        for parameter, piece in zip(self.parameters, x.split(self.sizes), strict=True):
            yield parameter, piece.view(parameter.shape)

    def write(self, x: Tensor) -> None:
        """Let the parameters be x, shape `(d,)`: views of it where the types agree, so x follows their changes."""
        for parameter, piece in self.pieces(x):
            parameter.data = piece.to(parameter.dtype)

    def read(self) -> Tensor:
        """The parameters as a new vector, shape `(d,)`."""
        return self.flatten(parameter.detach() for parameter in self.parameters)

    def flatten(self, tensors: Any) -> Tensor:
        """Tensors in the parameters' order and shapes as one vector, shape `(d,)`."""
        return torch.cat([tensor.reshape(-1).to(self.dtype) for tensor in tensors])

    def from_mapping(self, arrays: Mapping[str, Any], who: str) -> Tensor:
        """A vector from arrays by parameter name, as `state_dict()` gives them; other names are passed over.

        Raises:
            ValueError: a parameter is missing or has another shape; `who` is in the message.
        """
        found = []
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if name not in arrays:
                raise ValueError(f"{who} lacks {name!r}, which trains; every parameter is needed: {list(self.names)}.")
            tensor = torch.as_tensor(arrays[name])
            if tensor.shape != parameter.shape:
                raise ValueError(f"{who}: {name!r} has shape {tuple(tensor.shape)}; expected {tuple(parameter.shape)}.")
            found.append(tensor.detach().to(self.device))
        return self.flatten(found)

    def buffers(self) -> Buffers:
        """Copies of all buffers."""
        return {name: buffer.detach().clone() for name, buffer in self.module.named_buffers()}

    def set_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Give the module's buffers these values."""
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                buffer.copy_(buffers[name])

    def train(self) -> None:
        """Every part in the mode in which the user gave it."""
        for part, training in self._modes:
            part.training = training

    @contextmanager
    def evaluation(self, x: Tensor, buffers: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """The module at x in evaluation mode with these buffers."""
        self.write(x)
        self.set_buffers(buffers)
        self.module.eval()
        try:
            yield self.module
        finally:
            self.train()

    def build(self, x: Tensor, buffers: Mapping[str, Tensor]) -> nn.Module:
        """A new module at x with these buffers, independent of this one."""
        for parameter, piece in self.pieces(x):
            parameter.data = piece.to(parameter.dtype, copy=True)  # views would be copied with all of x behind them
        self.set_buffers(buffers)
        self.train()
        return copy.deepcopy(self.module)

    def refuse_single_rows(self, who: str, remedy: str) -> None:
        """Raise ValueError if batch normalization would meet a batch of one row."""
        for name, part in self.module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
                raise ValueError(
                    f"{who} would train on a batch of one row, for which the batch normalization {name!r} is "
                    f"undefined. {remedy}, or use GroupNorm."
                )


def weighted_sum(total: Any, weight: float, tree: Any) -> Any:
    """total + weight * tree, tensor by tensor, added up in float32 at least and in place; new for `total=None`.

    Example:
        >>> total = None
        >>> for _ in range(1000):
        ...     total = weighted_sum(total, 1.0, torch.ones(1, dtype=torch.float16))
        >>> total.item()
        1000.0
    """

    def wide(tensor: Tensor) -> Tensor:
        return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

    if total is None:
        return jax.tree.map(lambda tensor: weight * wide(tensor), tree)
    return jax.tree.map(lambda sum_, tensor: sum_.add_(wide(tensor), alpha=weight), total, tree)
