"""The two sshd nodes and what is tried on them."""
