"""Tests of runners/gates."""
