"""Timeline analysis."""
