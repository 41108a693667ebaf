"""Tests of runners/importing."""
