"""Folders, keys and configuration of an embedded lab.

DIR/twinrail.toml  ssh_config  known_hosts  id_ed25519  lab.json  lab.log  lib/sitecustomize.py
DIR/<node>/        home (HOME of every command), bin (first in PATH), state, sys (TWINRAIL_SYS), tmp, host_key
"""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runners.lab.devices import RAILS, RATE_GBPS, Rails, write_devices
from runners.lab.scenarios import SCENARIOS, Scenario

USER: Final = "lab"
HOST: Final = "127.0.0.1"
GPUS: Final = 8
MARK: Final = "TWINRAIL_LAB"  # in the environment of everything that a lab starts: how stop() finds what is left

# Every simulated node is this machine, but it must not say so: NCCL lines and manifests tell nodes apart by host name.
_SITECUSTOMIZE: Final = '''"""Gives Python on a lab node the node's own host name."""
import os
import socket

_name = os.environ.get("TWINRAIL_LAB_NODE")
if _name:
    socket.gethostname = lambda: _name
'''


@dataclass(frozen=True, slots=True)
class LabNode:
    """One node's folder and identity."""

    name: str
    index: int
    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state"

    def env(self, mark: str) -> dict[str, str]:
        """The environment that a command on this node starts with; nothing of the lab's own process leaks in."""
        return {
            "HOME": str(self.root / "home"),
            "USER": USER,
            "LOGNAME": USER,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "PATH": f"{self.root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(self.root / "tmp"),
            "PYTHONPATH": str(self.root.parent / "lib"),
            "TWINRAIL_SYS": str(self.root / "sys"),
            "TWINRAIL_LAB_NODE": self.name,
            "TWINRAIL_LAB_STATE": str(self.state),
            MARK: mark,
        }


def node_names(count: int) -> list[str]:
    """node5, node7, ... as the real pair is called."""
    return [f"node{5 + 2 * i}" for i in range(count)]


def _tool(path: Path, body: str) -> None:
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)


def prepare(folder: Path, count: int, scenario: Scenario) -> tuple[list[LabNode], list[Rails]]:
    """Make (or refresh) the folders of all nodes. Job folders and counters of an earlier lab stay."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "lib" / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    nodes, rails = [], []
    stand_in = Path(__file__).parent.parent / "payload" / "lab_nvidia_smi.py"
    for index, name in enumerate(node_names(count)):
        node = LabNode(name, index, folder / name)
        for sub in ("home", "bin", "state", "sys", "tmp"):
            (node.root / sub).mkdir(parents=True, exist_ok=True, mode=0o700)
        for stale in ("gpu_load", "rdma_load"):
            (node.state / stale).unlink(missing_ok=True)
        python, script = shlex.quote(sys.executable), shlex.quote(str(stand_in))
        _tool(node.root / "bin" / "nvidia-smi", f'exec {python} -IS {script} "$@"\n')
        _tool(node.root / "bin" / "hostname", f"echo {name}\n")
        write_devices(node.state, name, index, scenario)
        nodes.append(node)
        rails.append(Rails(node.root / "sys", node.state, index, scenario))
    return nodes, rails


def free_port_pair(wanted: int = 0) -> int:
    """A port that is free together with the next one (the simulated engine's HTTP server and its rendezvous): `wanted`
    if it is, else one below the range from which the kernel gives ports to outgoing connections."""
    for port in (wanted, *random.SystemRandom().sample(range(20000, 32000, 2), 200)):
        if port and all(_free(p) for p in (port, port + 1)):
            return port
    raise OSError("no two neighbouring free ports on loopback")


def _free(port: int) -> bool:
    """Nothing listens there on any address and nothing is connected from there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    part = path.with_name(path.name + ".part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    part.replace(path)


def ssh_config(folder: Path, ports: dict[str, int]) -> str:
    """For `ssh -F DIR/ssh_config node5`."""
    known, key = folder / "known_hosts", folder / "id_ed25519"
    return "".join(
        f'Host {name}\n  HostName {HOST}\n  Port {port}\n  User {USER}\n  IdentityFile "{key}"\n  IdentitiesOnly yes\n'
        f'  UserKnownHostsFile "{known}"\n\n'
        for name, port in ports.items()
    )


def inventory_text(folder: Path, ports: dict[str, int], server_port: int, scenario_name: str) -> str:
    """The lab's twinrail.toml: its nodes, one simulated deployment over all of them, and cases of a few seconds."""
    q = json.dumps  # a JSON string is a TOML basic string
    scenario = SCENARIOS[scenario_name]
    flags = ["--clock-scale", "5", "--log-stats-interval", "2", *scenario.sim_flags]
    out = [
        f"# The embedded lab: simulated engine and devices, scenario {scenario_name} ({scenario.title}).",
        '[project]\nname = "demo"\n',
    ]
    for name, port in ports.items():
        out.append(
            f"[[nodes]]\nname = {q(name)}\nhost = {q(HOST)}\nport = {port}\nuser = {q(USER)}\n"
            f"key = {q(str(folder / 'id_ed25519'))}\nknown_hosts = {q(str(folder / 'known_hosts'))}\n"
            f"ssh_config = {q(os.devnull)}\npython = {q(sys.executable)}\n"
            f'address = {q(HOST)}\ndevices = {{ vendor = "nvidia", count = {GPUS} }}\n'
            # The nodes of all labs are one machine to the node lock; each is to be held by itself.
            f"env = {{ TWINRAIL_LOCK_ROOT = {q(str(folder / name / 'lock'))} }}\n"
        )
        for i, (netdev, hca) in enumerate(RAILS, 1):
            out.append(
                f"[[nodes.rails]]\nnetdev = {q(netdev)}\nhca = {q(hca)}\n"
                f"switch = {q(f'switch{i}')}\ngbps = {RATE_GBPS}\n"
            )
    out.append(
        f'[deployments.sim]\nengine = "sim"\nmodel = "sim-model"\nnodes = {q(list(ports))}\nport = {server_port}\n'
        f"host = {q(HOST)}\ntopology = {{ tp = {GPUS * len(ports)} }}\nflags = {q(flags)}\n"
        'ready_timeout = "2m"\nstop_timeout = "10s"\nhang_timeout = "20s"\n'
    )
    out.append(
        "[slo.interactive]\nttft_ms = { p95 = 500 }\ntpot_ms = { p95 = 50 }\nsuccess = 0.99\n\n"
        '[cases.D1]\nisl = 256\nosl = 64\nslo = "interactive"\nbudget = "60s"\n\n'
        '[cases.D2]\nisl = 256\nosl = 64\nconcurrency = [4, 8]\nslo = "interactive"\nbudget = "60s"\n\n'
        '[plans.tour]\ndeployment = "sim"\ncases = ["D1", "D2"]\nrepeats = 1\n\n'
        '[searches.tour]\ncase = "D2-C8"\nmax_concurrency = 64\nrepeats = 1\n'
    )
    return "\n".join(out)
