"""Panels of our own on Textual's Line API: drawn when data or size change, repainted only where a line differs."""
