"""Tests of runners/formats."""
