"""The preflight checks: one function each, one line each here. See base.py for what they are given.

Order is the order of the report. `across`: judged once over all nodes.
"""

from __future__ import annotations

from runners.gates.preflight import disk, flags, gpus, leftovers, limits, memory, pcie, rails, rights, same
from runners.gates.preflight.base import Check

CHECKS: tuple[Check, ...] = (
    Check("disk", disk.room),
    Check("container", rights.container),
    Check("gpu", gpus.present),
    Check("gpu_holders", leftovers.gpu_memory),
    Check("containers", leftovers.old_containers),
    Check("ports", leftovers.ports),
    Check("p2p", pcie.peer_to_peer),
    Check("acs", pcie.acs),
    Check("iommu", pcie.iommu),
    Check("numa_map", pcie.numa_map),
    Check("ulimits", limits.ulimits),
    Check("cpu_limits", limits.cpu_limits),
    Check("kernel", limits.kernel),
    Check("gpudirect", limits.gpudirect),
    Check("rails", rails.ports),
    Check("rails_inside", rails.inside),
    Check("reach", rails.reachable),
    Check("profiling", rights.profiling),
    Check("others", rights.others),
    Check("flags", flags.flags),
    Check("secrets", flags.secrets),
    Check("memory", memory.memory),
    Check("image_same", same.image, across=True),
    Check("model_same", same.model, across=True),
    Check("versions", same.versions, across=True),
    Check("rails_same", rails.alike, across=True),
)
