"""Measurements of speed, memory and accuracy, as plain functions that return their figures."""
