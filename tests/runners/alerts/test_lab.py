"""Alerts of whole runs on the embedded lab: none when all is well, the right one when something is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runners.alerts import RULES

slow = pytest.mark.slow
BOTH_RAILS = {("rail_unequal", "node5"), ("rail_unequal", "node7")}
SCENES: list[Any] = [
    ("healthy", set(), set()),
    pytest.param("lossy-rail", {"retransmits"}, {("retransmits", "node7")}, marks=slow),
    pytest.param("idle-rail", {"rail_unequal"}, BOTH_RAILS, marks=slow),
    pytest.param("slow-rank", {"throttled"}, {("throttle", "node7")}, marks=slow),
    pytest.param("kv-pressure", {"kv_full", "preempted"}, {("kv_full", "node5"), ("preemptions", "node5")}, marks=slow),
]


def twinrail(home: Path, *args: str) -> Any:
    env = {**os.environ, "XDG_STATE_HOME": str(home)}
    program = [sys.executable, "-c", "from console.cli import main; main()"]
    done = subprocess.run([*program, *args], capture_output=True, text=True, env=env, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scenario", "flags", "told"), SCENES)
def test_alerts_of_a_run(tmp_path: Path, scenario: str, flags: set[str], told: set[tuple[str, str]]) -> None:
    document = twinrail(tmp_path, "demo", "--headless", "--json", "--scenario", scenario)
    attempts = [a for case in document["cases"] for a in case["attempts"]]
    marks = {rule.flag for rule in RULES}
    assert {f for a in attempts for f in a["flags"]} & marks == flags
    for attempt in attempts:
        hardware = attempt["hardware"]
        assert hardware["gpus"]["gpus"] == 16
        assert hardware["gpus"]["util_pct"] > 5
        assert len(hardware["rails"]) == 4
        assert hardware["engine"]["bracketed"]
        assert hardware["engine"]["generation_tokens"] > 0
    rows = twinrail(tmp_path, "sql", "--demo", "--json", "select rule, node, count from findings order by all")["rows"]
    assert {(rule, node) for rule, node, _ in rows} == told
    assert len(rows) == len(told)
