"""Solvers of the one local subproblem: minimize f_k(x) + <linear, x> + (rho/2) ||x - center||^2."""

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
