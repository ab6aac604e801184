"""PyTorch modules with the same algorithms, schedules, participation rules and histories.

    problem = fedual.torch.TorchProblem(module, loss, clients)
    solution = fedual.torch.solve(problem, fedual.FedADMM(oracle, step_size=0.1), rounds=100)
    trained = solution.module()

A client's subproblem is stated, its books are kept and its draws are made by the code that the simulator of JAX
functions runs, so on the same problem both give the same numbers up to rounding. Vectors that cross between PyTorch and
JAX (the server's step, proximal operators, minibatch indices) do so by DLPack, on a CPU without a copy.
"""

from fedual.torch.oracle import TorchOptimizer
from fedual.torch.problem import TorchProblem
from fedual.torch.run import iterate, solve
from fedual.torch.state import TorchSolution

__all__ = ["TorchOptimizer", "TorchProblem", "TorchSolution", "iterate", "solve"]
