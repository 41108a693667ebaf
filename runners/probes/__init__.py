"""One file per probe: the command that runs on the node and the parser that turns its bytes into rows.

A new probe is one file with a class that satisfies `base.Probe`, and one line in PROBES.
"""

from __future__ import annotations

from typing import Final

from runners.probes.amd import AmdProbe
from runners.probes.base import Parsed, Probe, ProbeContext, Reader
from runners.probes.dcgm import DcgmProbe
from runners.probes.engine import EngineProbe
from runners.probes.gpu_processes import GpuProcessesProbe
from runners.probes.host import HostProbe
from runners.probes.hygon import HygonProbe
from runners.probes.kernel import KernelProbe
from runners.probes.numa import NumaProbe
from runners.probes.nvidia import NvidiaProbe
from runners.probes.pcie import PcieProbe
from runners.probes.rails import RailsProbe
from runners.probes.threads import ThreadsProbe

PROBES: Final[dict[str, Probe]] = {
    probe.name: probe
    for probe in (
        EngineProbe(),
        HostProbe(),
        RailsProbe(),
        ThreadsProbe(),
        NumaProbe(),
        KernelProbe(),
        NvidiaProbe(),
        PcieProbe(),
        GpuProcessesProbe(),
        DcgmProbe(),
        HygonProbe(),
        AmdProbe(),
    )
}

__all__ = ["PROBES", "Parsed", "Probe", "ProbeContext", "Reader"]
