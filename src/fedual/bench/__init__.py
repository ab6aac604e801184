"""Measurements that the documentation quotes, as plain functions that return their figures."""
