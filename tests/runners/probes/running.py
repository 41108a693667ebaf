"""Runs a probe's own command for a while, as a job on a node would."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from runners.probes import PROBES, Parsed, ProbeContext
from runners.spec import Node

CONTEXT = ProbeContext(run_id="r", node="node5", job_id="j")
HERE = Node(name="node5", host="local")


def tool(folder: Path, name: str, body: str) -> None:
    """An executable sh script in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + body)
    (folder / name).chmod(0o755)


def observe(
    name: str,
    enough: Callable[[Parsed], bool],
    *,
    interval_s: float = 0.2,
    url: str | None = None,
    env: dict[str, str] | None = None,
    limit_s: float = 20.0,
) -> Parsed:
    """What the probe has printed by the time that it is `enough`, or that it has ended by itself."""
    argv = PROBES[name].argv(HERE, interval_s, url)
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        data = b""
        deadline = time.monotonic() + limit_s
        try:
            while time.monotonic() < deadline:
                data += process.stdout.read() or b""
                parsed = PROBES[name].parse(data, CONTEXT)
                if enough(parsed):
                    return parsed
                if process.poll() is not None:
                    data += process.stdout.read() or b""
                    return PROBES[name].parse(data, CONTEXT, final=True)
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    raise AssertionError(f"not enough from {name} within {limit_s} s: {data[-500:]!r}")
