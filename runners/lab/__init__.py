"""The embedded two-node lab: asyncssh servers on loopback, simulated devices."""
