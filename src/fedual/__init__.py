"""Federated learning by primal-dual optimization."""
