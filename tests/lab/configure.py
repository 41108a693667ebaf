"""Brings a lab up and writes twinrail.toml into its folder `work`: `python tests/lab/configure.py LABDIR [FLAG...]`.

The simulated engine runs on both sshd nodes, with the interpreter that runs this script (it has aiohttp, and the nodes
of a lab that this script brings up see it at the same path). Further arguments are flags of the engine.
"""

from __future__ import annotations

import json
import os
import subprocess
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


def up(lab: Path) -> int:
    """Exit code of `lab.sh up`, which leaves a lab that is up as it is. A node has its own /root, /tmp, /srv and
    /var/tmp; of the machine's it keeps what this interpreter needs."""
    needed = {sys.prefix, sys.base_prefix}
    keep = " ".join(sorted(p for p in needed if p.startswith(("/root/", "/tmp/", "/srv/", "/var/tmp/"))))
    env = {**os.environ, "LAB_KEEP": f"{keep} {os.environ.get('LAB_KEEP', '')}"}
    script = Path(__file__).with_name("lab.sh")
    return subprocess.run(["bash", str(script), "up", str(lab)], env=env, check=False).returncode


def hand_over(lab: Path) -> None:
    """Whoever ran this by sudo is who goes to the nodes: the key, its neighbours and `work` are theirs."""
    uid, gid = (int(os.environ.get(name, "0")) for name in ("SUDO_UID", "SUDO_GID"))
    for name in ("id_ed25519", "id_ed25519.pub", "known_hosts", "ssh_config", "work", "work/twinrail.toml"):
        if uid and (lab / name).exists():
            os.chown(lab / name, uid, gid)


def main(argv: list[str]) -> int:
    """Bring it up, write the file and print its path."""
    lab = Path(argv[0]).resolve()
    if code := up(lab):
        return code
    work = lab / "work"
    work.mkdir(exist_ok=True)
    path = work / "twinrail.toml"
    path.write_text(inventory_text(lab, tuple(argv[1:])), encoding="utf-8")
    hand_over(lab)
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
