"""Experiments as TOML files: sections checked on reading, objects made from names by looking at their classes."""

from fedual.config.build import Experiment, build, build_method, hold_out, load_data
from fedual.config.parts import build_part
from fedual.config.sections import Config, DataSection, OutputSection, ProblemSection, RunSection, StopSection

__all__ = [
    "Config",
    "DataSection",
    "Experiment",
    "OutputSection",
    "ProblemSection",
    "RunSection",
    "StopSection",
    "build",
    "build_method",
    "build_part",
    "hold_out",
    "load_data",
]
