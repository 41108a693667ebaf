"""Tests of the room screens."""
