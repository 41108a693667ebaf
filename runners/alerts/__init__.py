"""One file per alert rule. A new one is a class in a file, its query store/queries/alert_NAME.sql, and a line here."""

from __future__ import annotations

from typing import Final

from runners.alerts.base import Rule
from runners.alerts.clock import Clock
from runners.alerts.disk import Disk
from runners.alerts.gpu_lost import GpuLost
from runners.alerts.kv_full import KvFull
from runners.alerts.other_process import OtherProcess
from runners.alerts.pause import Pause
from runners.alerts.pinned_thread import PinnedThread
from runners.alerts.preemptions import Preemptions
from runners.alerts.probe_broken import ProbeBroken
from runners.alerts.probe_slow import ProbeSlow
from runners.alerts.rail_down import RailDown
from runners.alerts.rail_unequal import RailUnequal
from runners.alerts.retransmits import Retransmits
from runners.alerts.stalled import Stalled
from runners.alerts.throttle import Throttle
from runners.alerts.xid import Xid

RULES: Final[tuple[Rule, ...]] = (
    Throttle(),
    GpuLost(),
    Xid(),
    RailUnequal(),
    RailDown(),
    Retransmits(),
    Pause(),
    KvFull(),
    Preemptions(),
    Stalled(),
    PinnedThread(),
    Clock(),
    Disk(),
    ProbeBroken(),
    ProbeSlow(),
    OtherProcess(),
)
