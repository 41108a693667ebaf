"""What the live screen costs in a real terminal; run by hand.

    python tests/benchmarks/console_cost.py [--hours 24] [--seconds 60] [--watchers 10] [--flood 50000] [--threads N]

An owner serves a store that holds `--hours` of 1 Hz history of 16 GPUs, 4 rails and an engine, and writes one second
more each second. Watchers run the live screen in pseudo-terminals of 200x60. Printed:

    base      the owner's CPU with no watcher (ingest)
    watch     one watcher's CPU, what it adds to the owner's, bytes to the terminal, ticks and the longest tick
    flood     the same while `--flood` log lines a second are written for 10 s, and how much the watcher grew
    many      the same with `--watchers` of them

CPU is in percent of one core, from /proc/PID/stat; a tick is one round of queries and drawing. On a busy machine ticks
come late and the percentages flatter: `a tick` is what holds there, the CPU of a watcher and of the owner for one tick.
At the rate of one tick a second 10 ms are 1 %.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runners.session import OwnerState, Session
from store.database import Store
from store.share import Remote, make_token, serve
from tests.benchmarks import history
from tests.screens import scene

ROOT = Path(__file__).parents[2]
HZ = os.sysconf("SC_CLK_TCK")
Tick = tuple[float, float]


def own(folder: Path, hours: float, threads: int) -> None:
    """The owner: serve, write a second each second, and a flood while the file `flood` says how many lines a second."""
    with Store.open(folder / "twinrail.duckdb", threads=threads) as store:
        history.fill(store, hours, time.time_ns())
        make_token(folder / "token")
        server = serve(store, token_files={"read": folder / "token"}, on_order=lambda _text, _role: "{}")
        (folder / "url").write_text(server.url)
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        second = 0
        while not stop.wait(1.0):
            second += 1
            now = time.time_ns()
            store.write(history.one_second(second, now))
            asked = folder / "flood"
            if asked.exists():
                store.write(history.flood(second, now, int(asked.read_text() or 0)))
        server.stop()


def watch(folder: Path) -> None:
    """One watcher: the live screen; the length of each tick goes to a file at the end."""
    from console.app import TwinrailApp
    from screens.base import ConsoleScreen

    session = Session(
        scene.config(), Remote.connect((folder / "url").read_text(), folder / "token"), owner=OwnerState(True)
    )
    ticks: list[tuple[float, float]] = []  # when it ended (CLOCK_MONOTONIC, the same in every process), seconds
    inner = ConsoleScreen.refresh_data

    async def timed(self: ConsoleScreen) -> None:
        began = time.perf_counter()
        await inner(self)
        ticks.append((time.monotonic(), time.perf_counter() - began))

    ConsoleScreen.refresh_data = timed  # type: ignore[method-assign]  # measured from outside, the product has no clockwork
    app = TwinrailApp(session)
    app.call_later(app.action_go, "live")
    try:
        app.run()
    finally:
        (folder / f"ticks-{os.getpid()}").write_text(json.dumps(ticks))


# --- measuring


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Watcher:
    """A watcher in a pty; a thread reads what it writes and counts."""

    folder: Path
    columns: int = 200
    rows: int = 60
    bytes_out: int = 0
    said: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, __file__, "--watch", str(self.folder)]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=ROOT, start_new_session=True
        )
        os.close(slave)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([self.master], [], [], 1)
                if ready:
                    new = os.read(self.master, 65536)
                    self.bytes_out += len(new)
                    self.said = (self.said + new)[-400_000:]

    def wait_alive(self) -> None:
        end = time.monotonic() + 180
        while b"STEADY" not in self.said:
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                raise SystemExit(f"the watcher did not come up: {bytes(self.said[-1000:])!r}")
            time.sleep(0.2)

    def end(self) -> list[Tick]:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return [(at, took) for at, took in json.loads((self.folder / f"ticks-{self.process.pid}").read_text())]


@contextlib.contextmanager
def owner(folder: Path, hours: float, threads: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, __file__, "--own", str(folder), "--hours", str(hours), "--threads", str(threads)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        end = time.monotonic() + 300
        while not (folder / "url").exists():
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit("the owner did not come up")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Span:
    """One stretch of measuring: its begin and end (monotonic), CPU seconds of the watchers and added by the owner."""

    name: str
    began: float
    ended: float
    watchers: list[float]
    owner: float
    bytes_out: int


def measure(pid: int, watchers: list[Watcher], seconds: float, base: float, name: str) -> Span:
    before, sent, o = [cpu_s(w.process.pid) for w in watchers], sum(w.bytes_out for w in watchers), cpu_s(pid)
    began = time.monotonic()
    time.sleep(seconds)
    ended = time.monotonic()
    used = [cpu_s(w.process.pid) - b for w, b in zip(watchers, before, strict=True)]
    adds = cpu_s(pid) - o - base / 100 * (ended - began)
    return Span(name, began, ended, used, adds, sum(w.bytes_out for w in watchers) - sent)


def report(span: Span, ticks: list[Tick]) -> None:
    took, n = span.ended - span.began, len(span.watchers)
    each, adds = sum(span.watchers) / n / took * 100, span.owner / took * 100
    wire = span.bytes_out / n / took / 1000
    inside = [length for at, length in ticks if span.began <= at <= span.ended]
    many = "" if n == 1 else f"   ({n} watchers: figures of one, the owner's for all)"
    print(f"{span.name:6} watcher {each:5.1f} %   owner adds {adds:5.1f} %   sum {each + adds:5.1f} %", end="")
    print(f"   {wire:6.1f} kB/s to the terminal{many}")
    if inside:
        mine, its = (1000 * cpu / len(inside) for cpu in (sum(span.watchers), span.owner))
        ordered = sorted(inside)
        middle, longest = ordered[len(ordered) // 2] * 1000, ordered[-1] * 1000
        print(f"{'':6} {len(inside)} ticks, CPU for a tick: watcher {mine:.0f} ms, owner {its:.0f} ms", end="")
        print(f"; median {middle:.0f} ms, longest {longest:.0f} ms, {span.bytes_out / len(inside) / 1000:.1f} kB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--watchers", type=int, default=10)
    parser.add_argument("--flood", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=1, help="DuckDB threads of the owner; 1 is what it takes itself")
    parser.add_argument("--own", type=Path)
    parser.add_argument("--watch", type=Path)
    asked = parser.parse_args()
    if asked.own:
        own(asked.own, asked.hours, asked.threads)
        return
    if asked.watch:
        watch(asked.watch)
        return
    with tempfile.TemporaryDirectory() as name, owner(Path(name), asked.hours, asked.threads) as process:
        folder, pid = Path(name), process.pid
        size = (folder / "twinrail.duckdb").stat().st_size / 2**20
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; store {size:.0f} MiB")
        time.sleep(3)
        o, began = cpu_s(pid), time.monotonic()
        time.sleep(asked.seconds / 3)
        base = (cpu_s(pid) - o) / (time.monotonic() - began) * 100
        print(f"base   owner {base:.1f} % (writing one second each second, nobody watches)")

        one = Watcher(folder)
        one.wait_alive()
        time.sleep(3)
        spans = [measure(pid, [one], asked.seconds, base, "watch")]
        if asked.flood:
            rss = rss_mib(one.process.pid)
            (folder / "flood").write_text(str(asked.flood))
            spans.append(measure(pid, [one], 10, base, "flood"))
            (folder / "flood").unlink()
            time.sleep(3)
            grown = rss_mib(one.process.pid) - rss
            print(f"flood  the watcher grew by {grown:.1f} MiB (the owner's figure holds the ingest)")
        ticks = one.end()
        for span in spans:
            report(span, ticks)
        if asked.watchers > 1:
            many = [Watcher(folder) for _ in range(asked.watchers)]
            for w in many:
                w.wait_alive()
            time.sleep(3)
            span = measure(pid, many, asked.seconds / 2, base, "many")
            report(span, [t for w in many for t in w.end()])


if __name__ == "__main__":
    main()
