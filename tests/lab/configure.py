"""Writes twinrail.toml into the folder `work` of a lab that is up: `python tests/lab/configure.py LABDIR [FLAG...]`.

The simulated engine runs on both sshd nodes, with the interpreter that runs this script (it has aiohttp, and a node
sees the checkout's virtual environment at the same path). Further arguments are flags of the engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SIM = ("--clock-scale", "5", "--log-stats-interval", "2", "--state-dir", "/run/lab/state")


def inventory_text(lab: Path, flags: tuple[str, ...] = (), python: str = sys.executable) -> str:
    """The configuration as TOML text."""
    out = ['[project]\nname = "lab"\n']
    for name, last in (("node5", 5), ("node7", 7)):
        out.append(
            f'[[nodes]]\nname = "{name}"\nhost = "{name}"\nssh_config = {json.dumps(str(lab / "ssh_config"))}\n'
            f'root = "/srv/twinrail"\npython = {json.dumps(python)}\n'
            "rails = [\n"
            f'  {{ netdev = "eth0", hca = "mlx5_0", switch = "sw1", gbps = 400, address = "198.19.1.{last}" }},\n'
            f'  {{ netdev = "eth3", hca = "mlx5_3", switch = "sw2", gbps = 400, address = "198.19.2.{last}" }},\n]\n'
        )
    out.append(
        '[deployments.sim]\nengine = "sim"\nmodel = "sim-model"\nnodes = ["node5", "node7"]\n'
        f"topology = {{ tp = 16 }}\nport = 30000\nflags = {json.dumps([*SIM, *flags])}\n"
        'ready_timeout = "60s"\nstop_timeout = "5s"\nhang_timeout = "15s"\n'
    )
    out.append('[cases.D1]\nisl = 256\nosl = 64\nconcurrency = 4\nrequests = 100\nbudget = "60s"\n')
    return "\n".join(out)


def main(argv: list[str]) -> int:
    """Write the file and print its path."""
    lab = Path(argv[0]).resolve()
    work = lab / "work"
    work.mkdir(exist_ok=True)
    path = work / "twinrail.toml"
    path.write_text(inventory_text(lab, tuple(argv[1:])), encoding="utf-8")
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
