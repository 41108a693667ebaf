"""Trace ingest, time algebra, kernel families, statistics, evidence rules."""
