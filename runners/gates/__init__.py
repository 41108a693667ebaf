"""Preflight checks and the fail-closed RDMA gate."""
