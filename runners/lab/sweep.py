"""Processes of a lab: found by a mark in their environment, reaped, ended. Linux (/proc)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from runners.lab.layout import MARK

_PATIENCE_S: Final = 3.0


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat, which tells a reused pid; None when there is no such process or it is a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else int(words[19])


def marked(mark: str) -> list[int]:
    """Living processes of ours that carry this lab's mark (not the lab itself, whose own environment has none)."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{entry.name}/environ").read_bytes()
                if wanted in environ.split(b"\0") and start_ticks(int(entry.name)) is not None:
                    found.append(int(entry.name))
    return found


def end_marked(mark: str) -> int:
    """End everything with this mark: SIGTERM, then SIGKILL until nothing is left; how many had to go."""
    first = marked(mark)
    deadline = time.monotonic() + _PATIENCE_S
    _signal(first, signal.SIGTERM)
    while (left := marked(mark)) and time.monotonic() < deadline:
        reap(set())
        time.sleep(0.05)
    while left and time.monotonic() < deadline + _PATIENCE_S:
        _signal(left, signal.SIGKILL)
        reap(set())
        time.sleep(0.05)
        left = marked(mark)
    return len(first)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(own: set[int]) -> None:
    """Take the exit status of ended orphans that became our children; `own` are waited for by somebody else."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own:
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)
