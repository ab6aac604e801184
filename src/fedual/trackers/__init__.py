"""Writers for experiment trackers (extra `trackers`): callbacks for `fedual.solve`, like any that a user writes.

A callback is called with the `Solution` so far after every chunk of rounds; `Tracker` turns that into one call per new
round, and a subclass says where the figures go:

    class Print(Tracker):
        def log(self, round, figures):
            print(round, figures["stationarity"])
"""

from fedual.trackers.mlflow import MLflow
from fedual.trackers.tensorboard import TensorBoard
from fedual.trackers.tracker import Tracker

__all__ = ["MLflow", "TensorBoard", "Tracker"]
