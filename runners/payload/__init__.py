"""Stand-alone scripts that are pushed to nodes and run there; they import nothing of ours."""
