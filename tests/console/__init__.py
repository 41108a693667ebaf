"""Tests of the room console."""
