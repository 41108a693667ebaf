"""One file per launcher: how a command becomes a running server on a node."""
