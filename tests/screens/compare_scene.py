"""Stores with runs to compare: an A/B run in blocks, one whose B crashed, and two runs apart."""

from __future__ import annotations

from store.database import Store
from tests.store.analysis.ab import rig

CALM = [(100.0, 90.0), (101.0, 91.0), (99.0, 90.0), (100.0, 89.0), (102.0, 91.0), (100.0, 90.0)]


def compared(store: Store) -> None:
    """The newest A/B run is better by about a tenth; two more runs differ in a flag and, undeclared, in the kernel."""
    rows = rig.blocks("20261001-100000-ab-d", CALM)
    rows += rig.run("20261001-090000-first", [100.0] * 3, {"deployment.flags": "--x 1"})
    rows += rig.run("20261001-091500-second", [90.0] * 3, {"deployment.flags": "--x 2", "host.kernel": "6.8"})
    store.write(rows).result()


def crashed(store: Store) -> None:
    """Every server of side B crashed."""
    said = "rank 3 on node7: hang: no token for 120 s with requests in flight"
    store.write(rig.blocks("20261001-100000-ab-d", CALM, outcome="ENGINE_CRASH", detail=said)).result()


SCENES = (compared, crashed)
