"""Reaching a node: connection, detached jobs, tailing, transfer, clock."""
