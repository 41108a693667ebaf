"""Tests mirror the four rooms."""
