"""Federated methods: each states the local subproblem and keeps the books."""

from fedual.algorithms.averaging import FedAvg, FedOpt, FedProx
from fedual.algorithms.control_variates import SCAFFOLD, ProxSkip
from fedual.algorithms.primal_dual import ADMM, FedPD
from fedual.algorithms.running_mean import FedADMM, FedDR, FedSplit
from fedual.algorithms.server_memory import AFedPD, FedDyn

__all__ = [
    "ADMM",
    "SCAFFOLD",
    "AFedPD",
    "FedADMM",
    "FedAvg",
    "FedDR",
    "FedDyn",
    "FedOpt",
    "FedPD",
    "FedProx",
    "FedSplit",
    "ProxSkip",
]
