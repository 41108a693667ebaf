"""One file per launcher: how a command becomes a running server on a node. A new one is a file and a line here."""

from __future__ import annotations

from runners.launchers.base import Launcher
from runners.launchers.docker import Docker
from runners.launchers.process import Process

LAUNCHERS: dict[str, Launcher] = {one.name: one for one in (Process(), Docker())}
