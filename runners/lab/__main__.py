"""The lab's own process: `python -m runners.lab --dir DIR --scenario healthy --nodes 2`."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import asyncssh
import orjson

from runners.lab import control, layout, sweep
from runners.lab.devices import Rails
from runners.lab.scenarios import SCENARIOS
from runners.lab.server import NodeServer

log = logging.getLogger("twinrail.lab")

TICK_S: Final = 0.2  # a sample that falls between the counters of two ports is off by no more than this
_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h


def _key(path: Path) -> asyncssh.SSHKey:
    """The private key in `path`, made when it does not exist."""
    if path.exists():
        return asyncssh.read_private_key(path)
    key = asyncssh.generate_private_key("ssh-ed25519", comment="twinrail lab")
    layout.write_private(path, key.export_private_key())
    return key


async def _serve(folder: Path, scenario_name: str, count: int, idle_minutes: float) -> None:
    scenario = SCENARIOS[scenario_name]
    nodes, rails = layout.prepare(folder, count, scenario)
    before = control.read(folder)
    mark = before.mark if before else os.urandom(8).hex()
    client_key = _key(folder / "id_ed25519")
    servers, ports, known = [], {}, []
    for node in nodes:
        host_key = _key(node.root / "host_key")
        server = NodeServer(node, mark, host_key, client_key)
        ports[node.name] = await server.start(before.ports.get(node.name, 0) if before else 0)
        public = host_key.export_public_key().decode().split()
        known.append(f"[{layout.HOST}]:{ports[node.name]} {public[0]} {public[1]}\n")
        servers.append(server)
    server_port = layout.free_port_pair(before.server_port if before else 0)
    layout.write_private(folder / "known_hosts", "".join(known).encode())
    layout.write_private(folder / "ssh_config", layout.ssh_config(folder, ports).encode())
    text = layout.inventory_text(folder, ports, server_port, scenario_name)
    layout.write_private(folder / "twinrail.toml", text.encode())
    me = control.Lab(folder, os.getpid(), sweep.start_ticks(os.getpid()) or 0, mark, scenario_name, ports, server_port)
    layout.write_private(folder / control.FILE, orjson.dumps(me.as_dict(), option=orjson.OPT_INDENT_2))
    log.info("up: %s", ports)
    await _live(servers, rails, mark, idle_minutes)
    for server in servers:
        await server.close()
    await asyncio.to_thread(sweep.end_marked, mark)


async def _live(servers: list[NodeServer], rails: list[Rails], mark: str, idle_minutes: float) -> None:
    """Move the devices until SIGTERM or SIGINT, or until nobody was connected and no job lived for `idle_minutes`."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    busy_at = looked_at = time.monotonic()
    while not over.is_set():
        for rail in rails:
            rail.advance()
        sweep.reap(set().union(*(s.children for s in servers)))
        now = time.monotonic()
        if any(s.connections for s in servers):
            busy_at = now
        elif now - looked_at >= 10.0:
            looked_at = now
            if await asyncio.to_thread(sweep.marked, mark):
                busy_at = now
        if now - busy_at > idle_minutes * 60:
            log.info("nobody here for %g minutes: the lab ends", idle_minutes)
            return
        try:
            async with asyncio.timeout(TICK_S):
                await over.wait()
        except TimeoutError:
            continue


def main(argv: list[str]) -> int:
    """Run a lab in this process until it is told to end."""
    cli = argparse.ArgumentParser(prog="python -m runners.lab", description="The embedded two-node lab.")
    cli.add_argument("--dir", type=Path, required=True)
    cli.add_argument("--scenario", choices=sorted(SCENARIOS), default="healthy")
    cli.add_argument("--nodes", type=int, choices=range(1, 17), default=2, metavar="N")
    cli.add_argument("--idle-minutes", type=float, default=30.0)
    args = cli.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    os.umask(0o077)
    folder = args.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lab.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held for as long as this process lives
    except BlockingIOError:
        log.info("a lab lives in %s already", folder)
        return control.TAKEN
    # Jobs leave their sessions on purpose; as their new parent we can reap them, where PID 1 of a container may not.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asyncio.run(_serve(folder, args.scenario, args.nodes, args.idle_minutes))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
