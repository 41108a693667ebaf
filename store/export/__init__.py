"""Results tree, manifest, commands."""
