"""The procedures that an operator follows, one file each."""
