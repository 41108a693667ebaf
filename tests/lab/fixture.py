"""The two-node lab as a pytest fixture: up once per session, healed after every test.

In a conftest.py:  from tests.lab.fixture import lab as lab
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.spec import Node

SCRIPT = Path(__file__).with_name("lab.sh")
CHECKOUT = Path(__file__).resolve().parents[2]
HIDDEN = ("/root/", "/tmp/", "/srv/", "/var/tmp/")  # a node has its own
# How each fault ends. heal covers what happens to the links.
UNDO = {"freeze": "thaw", "kill-sshd": "start-sshd", "stop-sshd": "start-sshd", "crash": "boot"}
LINKS = {"cut", "delay", "loss", "rail-loss", "rail-cut", "rail-rate", "rail-delay"}


class LabError(Exception):
    """Why there is no lab on this machine, or what lab.sh could not do."""


class Lab:
    """Two sshd nodes, node5 and node7. See lab.sh for the faults."""

    names = ("node5", "node7")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._undo: dict[tuple[str, str], None] = {}
        self._rekeyed = False

    def node(self, name: str, **changes: Any) -> Node:
        """The node as an operator would configure it, by its alias in the lab's ssh_config."""
        last = name.removeprefix("node")
        rails = [
            {"netdev": "eth0", "hca": "mlx5_0", "switch": "switch 1", "address": f"198.19.1.{last}"},
            {"netdev": "eth3", "hca": "mlx5_3", "switch": "switch 2", "address": f"198.19.2.{last}"},
        ]
        settings: dict[str, Any] = {"ssh_config": str(self.folder / "ssh_config"), "rails": rails}
        return Node.model_validate({"name": name, "host": name, **settings, **changes})

    def call(self, verb: str, *args: str) -> str:
        """lab.sh VERB DIR ARGS."""
        command = ["bash", str(SCRIPT), verb, str(self.folder), *args]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
        if done.returncode != 0:
            raise LabError(f"{' '.join(command[1:])}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def inside(self, name: str, command: str) -> str:
        """Output of a shell command in the node, not over SSH; whatever its exit code."""
        command_line = ["bash", str(SCRIPT), "exec", str(self.folder), name, "sh", "-c", command]
        return subprocess.run(command_line, capture_output=True, text=True, check=False).stdout

    def fault(self, name: str, what: str, *args: str) -> None:
        """Do it now; it is undone after the test, or by fault(name, UNDO[what]) before."""
        self.call("fault", name, what, *args)
        if what in UNDO:
            self._undo[name, UNDO[what]] = None
        elif what in LINKS:
            self._undo[name, "heal"] = None
        elif what == "skew":
            self._undo[name, "skew"] = None
        else:
            self._undo.pop((name, what), None)

    def rekey(self, name: str) -> None:
        """Another host key; known_hosts keeps the old one until the test ends."""
        self.call("rekey", name)
        self._rekeyed = True

    def restore(self) -> None:
        """Undo what is still broken."""
        while self._undo:
            name, what = self._undo.popitem()[0]
            self.call("fault", name, what, *(["0"] if what == "skew" else []))
        if self._rekeyed:
            self.call("up")
            self._rekeyed = False


def _environment() -> dict[str, str]:
    """The checkout and the interpreter stay visible in a node, also where the node has a folder of its own."""
    wanted = {str(CHECKOUT), sys.prefix, sys.base_prefix}
    return {**os.environ, "LAB_KEEP": " ".join(sorted(p for p in wanted if p.startswith(HIDDEN)))}


@functools.cache
def shared_lab() -> Lab:
    """The one lab of this process, taken down at its end. Raises LabError."""
    if os.geteuid() != 0:
        raise LabError("the two-node lab needs root")
    check = subprocess.run(["bash", str(SCRIPT), "check"], capture_output=True, text=True, check=False)
    if check.returncode != 0:
        raise LabError(f"the two-node lab: {check.stdout.strip().splitlines()[-1]}")
    folder = Path(tempfile.mkdtemp(prefix="twinrail-lab-"))
    folder.chmod(0o755)
    lab = Lab(folder)
    atexit.register(_take_down, lab)
    lab.call("up")
    return lab


def _take_down(lab: Lab) -> None:
    subprocess.run(["bash", str(SCRIPT), "purge", str(lab.folder)], capture_output=True, check=False)
    shutil.rmtree(lab.folder, ignore_errors=True)


@functools.cache
def _at_end_of(config: pytest.Config) -> None:
    config.add_cleanup(functools.partial(_take_down, shared_lab()))  # also in a worker, which skips atexit


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab, all faults of the test undone afterwards."""
    try:
        found = shared_lab()
    except LabError as e:
        if os.environ.get("TWINRAIL_NEED_LAB"):  # .ci/run: a skipped lab would be a silent hole
            pytest.fail(str(e))
        pytest.skip(str(e))
    _at_end_of(request.config)
    yield found
    found.restore()
