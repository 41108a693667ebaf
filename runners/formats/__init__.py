"""Pure parsers for captured output: one file per tool, one line per kind in kinds.py.

A parser takes lines of text and yields rows, events and skips; it never touches a node, a clock or the disk, so
the same code reads a live stream, a saved file and a colleague's paste. Nothing here raises on bad input: a bad
line costs that line and is counted.
"""
