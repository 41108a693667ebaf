"""Start, find and stop an embedded lab from another process. Light to import."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runners.lab import sweep
from runners.lab.scenarios import SCENARIOS

FILE: Final = "lab.json"
TAKEN: Final = 3  # exit code of a lab whose folder another one has
_START_S: Final = 20.0
_STOP_S: Final = 10.0


class LabError(Exception):
    """The lab did not come up. The text says why and where its log is."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab as its file describes it. `ports`: node -> SSH port on loopback."""

    folder: Path
    pid: int
    start_ticks: int
    mark: str
    scenario: str
    ports: dict[str, int]
    server_port: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "start_ticks": self.start_ticks,
            "mark": self.mark,
            "scenario": self.scenario,
            "ports": self.ports,
            "server_port": self.server_port,
        }

    @property
    def alive(self) -> bool:
        return sweep.start_ticks(self.pid) == self.start_ticks

    @property
    def inventory_path(self) -> Path:
        return self.folder / "twinrail.toml"


def read(folder: Path) -> Lab | None:
    """What the lab's file says, whether the lab lives or not; None without a readable file."""
    try:
        raw = json.loads((folder / FILE).read_bytes())
        return Lab(
            folder,
            int(raw["pid"]),
            int(raw["start_ticks"]),
            str(raw["mark"]),
            str(raw["scenario"]),
            {str(name): int(port) for name, port in raw["ports"].items()},
            int(raw["server_port"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def find(folder: Path) -> Lab | None:
    """The living lab in this folder, or None."""
    lab = read(folder.resolve())
    return lab if lab is not None and lab.alive else None


def start(folder: Path, scenario: str = "healthy", nodes: int = 2, idle_minutes: float = 30.0) -> str:
    """Start a lab in a session of its own, or find the one that runs there; the text of its twinrail.toml.

    A lab of another scenario or size is stopped first.

    Raises:
        LabError: no such scenario, or it did not come up within 20 s.
    """
    folder = folder.resolve()
    if scenario not in SCENARIOS:
        raise LabError(f"no scenario is called {scenario!r}. Known: {', '.join(SCENARIOS)}.")
    lab = find(folder)
    if lab is not None and (lab.scenario, len(lab.ports)) == (scenario, nodes):
        return lab.inventory_path.read_text(encoding="utf-8")
    stop(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = [sys.executable, "-m", "runners.lab", "--dir", str(folder), "--scenario", scenario]
    argv += ["--nodes", str(nodes), "--idle-minutes", str(idle_minutes)]
    log_path = folder / "lab.log"
    with log_path.open("ab") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        lab = find(folder)
        if lab is not None and (lab.scenario, len(lab.ports)) == (scenario, nodes):  # ours, or one started just before
            if lab.pid != child.pid:
                child.kill()  # it came too late, and must not take over when the other ends
                child.wait()
            child.returncode = 0  # the lab is not ours to wait for: it outlives us
            return lab.inventory_path.read_text(encoding="utf-8")
        if child.poll() not in (None, TAKEN):
            break
        time.sleep(0.05)
    if child.poll() is None:
        child.kill()
        child.wait()
    tail = log_path.read_text(errors="replace").strip().splitlines()[-1:]
    raise LabError(f"the embedded lab did not come up: {' '.join(tail)[:300]} (log: {log_path})")


def stop(folder: Path) -> bool:
    """End the lab in this folder and everything that it started; False when none lived there. Files stay."""
    lab = read(folder.resolve())
    if lab is None:
        return False
    lived = lab.alive
    if lived:
        _end(lab)
    sweep.end_marked(lab.mark)
    return lived


def _end(lab: Lab) -> None:
    deadline = time.monotonic() + _STOP_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(lab.pid, signal.SIGTERM)
    while lab.alive:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(lab.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(lab.pid, os.WNOHANG)  # when it is a child of ours, a zombie must not linger
        time.sleep(0.05)
