"""Measurements that the documentation quotes, as plain functions."""
