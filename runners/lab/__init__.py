"""The embedded two-node lab: SSH servers on loopback in a process of their own, simulated devices, no root, no sshd."""

from runners.lab.control import Lab, LabError, find, start, stop
from runners.lab.scenarios import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Lab", "LabError", "Scenario", "find", "start", "stop"]
