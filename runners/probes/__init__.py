"""One file per probe: the command that runs on the node and the parser that turns its bytes into rows.

A new probe is one file with a class that satisfies `base.Probe`, and one line in PROBES.
"""

from __future__ import annotations

from typing import Final

from runners.probes.base import Parsed, Probe, ProbeContext, Reader
from runners.probes.engine import EngineProbe
from runners.probes.host import HostProbe
from runners.probes.nvidia import NvidiaProbe
from runners.probes.rails import RailsProbe

PROBES: Final[dict[str, Probe]] = {
    probe.name: probe
    for probe in (
        EngineProbe(),
        HostProbe(),
        NvidiaProbe(),
        RailsProbe(),
    )
}

__all__ = ["PROBES", "Parsed", "Probe", "ProbeContext", "Reader"]
