"""One file per probe: the command that runs on the node and the parser that turns its bytes into rows."""
