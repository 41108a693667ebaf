"""Tests of runners/nodes: links, jobs, tails, clocks and locks."""
