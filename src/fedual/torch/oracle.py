"""Local work by the module's own optimizer, and by first-order oracles on tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedual.local import Subproblem
from fedual.oracles import Optax, PerClient
from fedual.protocols import FirstOrder, Oracle
from fedual.torch.problem import TorchLocal, TorchProblem

__all__ = ["TorchOptimizer", "client_oracles", "solve_subproblem"]

_AUTO_STEPS = 10


@dataclasses.dataclass(frozen=True)
class TorchOptimizer(Oracle):
    """Steps of a `torch.optim` optimizer on the subproblem, on the module's own parameters.

    Every step draws `batch_size` of the client's rows uniformly with replacement, the same rows as
    `fedual.oracles.StochasticGradient`. The optimizer sees the gradient of the whole subproblem:
    grad f_k(x) + linear + rho (x - center).

    Args:
        factory: parameters -> optimizer, for example `functools.partial(torch.optim.SGD, lr=0.1)`. Optimizers whose
            `step` needs a closure do not serve.
        steps: Q >= 1; one number, or one per client. Leave it out when `epochs` is given.
        batch_size: B >= 1.
        epochs: instead of steps: a client of n_k rows makes max(1, round(epochs n_k / B)) steps.
        keep: whether the optimizer's state (momentum, second moments) is carried from round to round.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> oracle = TorchOptimizer(partial(torch.optim.Adam, lr=0.01), epochs=1, batch_size=32)
    """

    factory: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    steps: Any = None
    batch_size: int = 32
    epochs: float | None = None
    keep: bool = False

    @property
    def carries(self) -> bool:  # type: ignore[override]
        return self.keep

    def solve(  # type: ignore[override]
        self, local: TorchLocal, subproblem: Subproblem, carry: Any, indices: Tensor
    ) -> tuple[Tensor, Any, int]:
        """As `Oracle.solve`; `indices` are the rows of every step's minibatch, shape `(Q, B)`."""
        flat, rho = local.flat, subproblem.rho + local.l2
        x = subproblem.start.clone()
        flat.write(x)
        optimizer = self.factory(flat.parameters)
        if carry != ():
            optimizer.load_state_dict(carry)
        # The gradient of the penalty is rho x + offset. Each step's gradients start there, and what the loss adds is
        # accumulated onto them; without a penalty they start from nothing, which is cheaper.
        offset = subproblem.linear - subproblem.rho * subproblem.center
        pulls = [(p, piece.to(p.dtype)) for p, piece in flat.pieces(offset)] if rho or offset.any() else []
        for parameter, _ in pulls:
            parameter.grad = torch.empty_like(parameter)
        for rows in indices:
            if not pulls:
                optimizer.zero_grad()
            with torch.no_grad():
                for parameter, pull in pulls:
                    torch.add(pull, parameter, alpha=rho, out=parameter.grad)
            local.mean(rows).backward()
            optimizer.step()
        for parameter in flat.parameters:
            parameter.grad = None
        kept = copy.deepcopy(optimizer.state_dict()) if self.keep else ()
        return flat.read(), kept, indices.numel()


def solve_subproblem(
    oracle: Any, local: TorchLocal, subproblem: Subproblem, carry: Any, visits: int, indices: Tensor | None
) -> tuple[Tensor, Any, int]:
    """One client's local work: the result `(d,)`, the next carry, the sample gradients evaluated.

    Args:
        oracle: settled for this client, see `client_oracles`.
        visits: rounds that the client has worked before.
        indices: rows of the minibatches, shape `(Q, B)`; None for full gradients.
    """
    if isinstance(oracle, TorchOptimizer):
        return oracle.solve(local, subproblem, carry, indices)  # type: ignore[arg-type]
    x = subproblem.start
    if not oracle.carries or visits == 0:
        carry = oracle.init(local, x)
    spent = 0
    if oracle.wants(visits):
        carry, spent = oracle.begin(x, carry, local.gradient(x)), local.count
    for number in range(oracle.steps):
        x, carry = oracle.step(x, carry, subproblem, local, None if indices is None else indices[number])
    return x, carry if oracle.carries else (), spent + oracle.steps * oracle.cost(local.count)


def client_oracles(problem: TorchProblem, oracle: Any) -> list[Any]:
    """Every client's oracle with plain numbers for its settings.

    Raises:
        ValueError: an oracle that does not work on tensors, or a setting that is out of range; the remedy is named.
    """
    if isinstance(oracle, PerClient):
        distinct, groups = oracle.groups(problem.names)
        return [_settle(problem, distinct[group], k) for k, group in enumerate(groups)]
    return [_settle(problem, oracle, k) for k in range(len(problem.names))]


def _settle(problem: TorchProblem, oracle: Any, k: int) -> Any:
    if not isinstance(oracle, FirstOrder | TorchOptimizer) or isinstance(oracle, Optax):
        raise ValueError(
            f"{type(oracle).__name__} does not work on tensors; use fedual.torch.TorchOptimizer, or GradientDescent, "
            "StochasticGradient, Linearized, VarianceReduced or SVRG of fedual.oracles."
        )
    name, count = problem.names[k], int(problem.sizes[k])
    changes: dict[str, Any] = {}
    epochs = getattr(oracle, "epochs", None)
    if (epochs is None) == (oracle.steps is None):
        raise ValueError(f"steps = {oracle.steps!r} and epochs = {epochs!r}: give exactly one of the two.")
    for field in ("steps", "learning_rate", "gamma", "batch_size", "refresh", "epochs"):
        value = getattr(oracle, field, None)
        if value is not None:
            changes[field] = _number(field, value, k, len(problem.names))
    if epochs is not None:
        changes["steps"] = max(1, round(changes.pop("epochs") * count / changes["batch_size"]))
    settled: Any = dataclasses.replace(cast(Any, oracle), **changes)
    if settled.batch_size == 1:
        problem.flat.refuse_single_rows(f"client {name!r}", "Take batch_size >= 2")
    draws = isinstance(settled, TorchOptimizer) or type(settled).wants is FirstOrder.wants
    full = settled.batch_size is None or not draws
    if full and count == 1:
        problem.flat.refuse_single_rows(f"client {name!r}", "Leave that client out, or draw minibatches")
    return settled


def _number(field: str, value: Any, k: int, clients: int) -> Any:
    """One client's value of a setting as a Python number."""
    if isinstance(value, str):
        if value == "auto" and field == "steps":
            return _AUTO_STEPS
        raise ValueError(f"{field} = {value!r}: a module has no known smoothness constant; give {field} as a number.")
    array = np.asarray(value)
    if array.shape not in ((), (clients,)):
        raise ValueError(f"{field}: {array.size} values for {clients} clients; give one, or one each.")
    number = array.item() if array.ndim == 0 else array[k].item()
    whole = field in ("steps", "batch_size", "refresh")
    if isinstance(number, bool) or not (0 < number < float("inf")) or (whole and not isinstance(number, int)):
        raise ValueError(f"{field} = {number!r} must be {'an integer >= 1' if whole else 'positive and finite'}.")
    return number
