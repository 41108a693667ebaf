"""One file per load client: its command and the parser of its results."""
