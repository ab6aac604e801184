"""Runs in folders: run, stop, resume, read, predict."""

from fedual.runs.execute import Outcome, resume, run
from fedual.runs.folder import RunFolder
from fedual.runs.load import Model, Run, load, load_model
from fedual.runs.predict import predict_files

__all__ = ["Model", "Outcome", "Run", "RunFolder", "load", "load_model", "predict_files", "resume", "run"]
