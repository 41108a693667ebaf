"""Tests of the room runners."""
