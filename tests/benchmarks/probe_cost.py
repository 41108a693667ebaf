"""CPU of all probes of a node at their usual pace, against plain `nvidia-smi -l 1` on the same stand-in.

    python -m tests.benchmarks.probe_cost [--seconds 60] [--processes 8] [--threads 100] [--jobs]

The stand-in prints a fixed answer and costs about a millisecond, so what is measured is ours: shells, head, sleep, and
what they read. A simulated server of some processes with many sleeping threads is followed. `--jobs` starts the
probes as detached jobs, with the shells that keep them. Figures are seconds of CPU, and % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runners.nodes import jobs
from runners.nodes.jobs import JobSpec
from runners.nodes.link import open_link
from runners.probes import PROBES
from runners.spec import Node

DATA = Path(__file__).parent.parent / "data" / "probes"
HERE = Node(name="here", host="local")
NEEDED = ("host", "rails", "threads", "numa", "kernel", "nvidia", "pcie", "gpu_processes", "dcgm")
TICKS = os.sysconf("SC_CLK_TCK")
SLEEPERS = """
import os, sys, threading, time
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        break
for _ in range(int(sys.argv[2])):
    threading.Thread(target=time.sleep, args=(9999,), daemon=True).start()
time.sleep(9999)
"""
CSV = "index, uuid, pci.bus_id, name, utilization.gpu [%], memory.used [MiB], power.draw [W]"


def stand_in(folder: Path) -> None:
    """nvidia-smi as a shell script without forks; dmon, compute-apps and help too."""
    rows = "\n".join(f"{g}, GPU-{g}-0-0, 00000000:{g}6:00.0, Stand-in, 97, 89077, 430.12" for g in range(8))
    dmon = "# gpu  rxpci  txpci\n# Idx   MB/s   MB/s\n" + "\n".join(f"    {g}   1250    980" for g in range(8))
    known = "\n".join(
        f'"{n}"' for n in ("index", "uuid", "pci.bus_id", "name", "utilization.gpu", "memory.used", "power.draw")
    )
    script = f"""#!/bin/sh
case "$*" in
  *--help*) echo '{known}';;
  dmon*) echo '{dmon}';;
  *compute*) echo 'pid, process_name, gpu_uuid, used_gpu_memory [MiB]';;
  *-l*) while :; do echo '{CSV}
{rows}'; sleep 1; done;;
  *) echo '{CSV}
{rows}';;
esac
"""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(script)
    (folder / "nvidia-smi").chmod(0o755)


def rails(folder: Path) -> None:
    for hca in ("mlx5_0", "mlx5_3"):
        for group, names in (
            (
                "counters",
                ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_rcv_errors"),
            ),
            (
                "hw_counters",
                ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "np_cnp_sent", "out_of_buffer"),
            ),
        ):
            path = folder / "class" / "infiniband" / hca / "ports" / "1" / group
            path.mkdir(parents=True)
            for name in names:
                (path / name).write_text("123456789\n")


def server(folder: Path, processes: int, threads: int) -> subprocess.Popen[bytes]:
    """A rank's job folder beside those of the probes, with a server of so many processes and threads."""
    rank = folder / "jobs" / "life.r0"
    rank.mkdir(parents=True)
    script = [sys.executable, "-c", SLEEPERS, str(processes), str(threads)]
    process = subprocess.Popen(script, start_new_session=True)
    (rank / "pid").write_text(f"{process.pid}\n")
    return process


def measured(argv: list[str], env: dict[str, str], seconds: float) -> tuple[float, int]:
    """CPU seconds of a command and all its children, and bytes that it wrote."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(argv, stdout=out, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        time.sleep(seconds)
        held = alive_ticks(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        return usage.ru_utime + usage.ru_stime + held / TICKS, out.tell()


def alive_ticks(session: int) -> int:
    """CPU of what still runs in a session besides its leader: its parent has not counted it yet."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != session:
            try:
                words = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            if int(words[3]) == session:
                total += sum(int(w) for w in words[11:15])
    return total


async def as_jobs(home: Path, env: dict[str, str], seconds: float) -> float:
    """CPU seconds of everything below detached jobs of all probes, their keepers included."""
    os.environ["HOME"] = str(home)
    link = open_link(HERE)
    await link.up()
    wanted = {"PATH": env["PATH"], "TWINRAIL_SYS": env["TWINRAIL_SYS"]}
    started = [
        await jobs.start(link, JobSpec(job_id=f"run.{name}.here", argv=PROBES[name].argv(HERE), env=wanted, ttl_s=3600))
        for name in NEEDED
    ]
    await asyncio.sleep(2)
    sessions = [s.pid for s in started if s.pid] + [
        int((Path(s.folder) / "keeper").read_text()) for s in started if s.folder
    ]
    before = sum(map(session_ticks, sessions))
    await asyncio.sleep(seconds)
    used = (sum(map(session_ticks, sessions)) - before) / TICKS
    for s in started:
        await jobs.stop(link, s.job_id, 1)
    await link.close()
    return used


def session_ticks(session: int) -> int:
    try:
        words = Path(f"/proc/{session}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return sum(int(w) for w in words[11:15]) + alive_ticks(session)


def show(what: str, used: float, seconds: float, size: int | None = None) -> None:
    rate = "" if size is None else f"{size / seconds / 1024:8.1f}"
    print(f"  {what:<14} {used:7.3f} {100 * used / seconds:6.2f} % {rate}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=100)
    parser.add_argument("--jobs", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stand_in(folder / "bin")
        rails(folder / "sys")
        there = server(folder, options.processes, options.threads)
        env = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "TWINRAIL_SYS": str(folder / "sys"),
            "TWINRAIL_JOB_DIR": str(folder / "jobs" / "probe"),
        }
        (folder / "jobs" / "probe").mkdir()
        count = sum(e.name.isdecimal() for e in Path("/proc").iterdir())
        print(f"{count} processes here; a server of {options.processes} processes with {options.threads} threads each")
        print(f"{options.seconds:g} s each; CPU s, % of a core, KiB/s written")
        try:
            total = 0.0
            for probe in NEEDED:
                used, size = measured(PROBES[probe].argv(HERE), env, options.seconds)
                total += used
                show(probe, used, options.seconds, size)
            show("all", total, options.seconds)
            peer, size = measured([shutil.which("nvidia-smi", path=env["PATH"]) or "", "-l", "1"], env, options.seconds)
            show("nvidia-smi -l", peer, options.seconds, size)
            if options.jobs:
                used = asyncio.run(as_jobs(folder / "home", env, options.seconds))
                show("as jobs", used, options.seconds)
        finally:
            os.killpg(there.pid, signal.SIGKILL)
            there.wait()


if __name__ == "__main__":
    main()
