"""Between PyTorch and JAX: by DLPack, on a CPU without a copy. Neither side writes to what it shares."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

__all__ = ["to_jax", "to_torch", "tree_to_torch"]


def to_jax(tree: Any) -> Any:
    """Tensors, on whatever device, as JAX arrays on the CPU."""
    return jax.tree.map(lambda tensor: jnp.from_dlpack(tensor.detach().cpu().contiguous()), tree)


def to_torch(array: Any, device: torch.device) -> torch.Tensor:
    """A JAX array as a tensor on the given device."""
    return torch.utils.dlpack.from_dlpack(jax.block_until_ready(array)).to(device)


def tree_to_torch(tree: Any, device: torch.device) -> Any:
    """`to_torch` for every leaf."""
    return jax.tree.map(lambda array: to_torch(array, device), tree)
