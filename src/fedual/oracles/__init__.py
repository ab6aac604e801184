"""Solvers of the one local subproblem: minimize f_k(x) + <linear, x> + (rho/2) ||x - center||^2.

A solver of your own is a small class: a `FirstOrder` with one `step`, or an `Oracle` with `solve`. Its numbers are
fields; `record` makes it something that the compiled program takes as data, `static` marks what shapes the program.

Example:
    >>> import fedual as fd
    >>> from fedual.arrays import record, static
    >>> @record
    ... class SoftDescent(fd.oracles.FirstOrder):
    ...     steps: int = static(default=8)
    ...     learning_rate: float = 0.1
    ...     def step(self, x, carry, subproblem, local, indices):
    ...         slope = local.gradient(x) + subproblem.penalty_gradient(x)
    ...         return x - self.learning_rate * slope / (1 + abs(slope)), carry
    >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
    >>> problem = fd.Problem(fd.losses.least_squares(), clients)
    >>> round(float(fd.solve(problem, fd.FedPD(SoftDescent(), step_size=1.0), rounds=300).theta[0]), 4)
    0.8
"""

from fedual.oracles.first_order import GradientDescent, Linearized, Optax, StochasticGradient
from fedual.oracles.mixed import PerClient
from fedual.oracles.solvers import LBFGS, Exact, Newton
from fedual.oracles.variance_reduced import SVRG, VarianceReduced
from fedual.protocols import FirstOrder, Oracle

__all__ = [
    "LBFGS",
    "SVRG",
    "Exact",
    "FirstOrder",
    "GradientDescent",
    "Linearized",
    "Newton",
    "Optax",
    "Oracle",
    "PerClient",
    "StochasticGradient",
    "VarianceReduced",
]
