"""Federated methods: each states the local subproblem and keeps the books."""

from fedual.algorithms.averaging import FedAvg
from fedual.algorithms.primal_dual import ADMM, FedPD

__all__ = ["ADMM", "FedAvg", "FedPD"]
