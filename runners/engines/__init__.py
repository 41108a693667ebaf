"""One file per engine: commands per rank, readiness, metric names, log events."""
