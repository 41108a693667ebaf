"""Kill -9 of owner and watcher at drawn moments, `resume`, and an audit of every byte.

Run by durability.sh. The audit shares no code with the store: it opens the database file with plain DuckDB and hashes
the job files that lie on the nodes. Moments: launch (server job there, not ready), warmup, commit (the write-ahead log
is growing, under a flood of log lines), drain, collect (the results folder is being filled).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb

NODES = ("node5", "node7")
MOMENTS = ("launch", "warmup", "commit", "drain", "collect")
FLOOD = 1500  # log lines a second of rank 0


class Campaign:
    """One lab, one store, many runs."""

    def __init__(self, lab: Path, seed: int) -> None:
        self.lab = lab
        self.work = lab / "work"
        self.config = self.work / "twinrail.toml"
        self.store = self.work / "twinrail.duckdb"
        self.random = random.Random(seed)
        self.hits: Counter[str] = Counter()
        self.runs: list[str] = []

    def twinrail(self, *args: str) -> list[str]:
        return [str(Path(sys.executable).with_name("twinrail")), *args, "--config", str(self.config)]

    def owner_pid(self) -> int | None:
        try:
            return int(json.loads((self.work / "twinrail.duckdb.owner" / "owner.json").read_text())["pid"])
        except (OSError, ValueError, KeyError):
            return None

    def job_files(self, run_id: str, suffix: str) -> list[Path]:
        found: list[Path] = []
        for node in NODES:
            found += (self.lab / node / "srv/twinrail/jobs").glob(f"{run_id}*{suffix}/stdout")
        return found

    def says(self, run_id: str, suffix: str, word: bytes) -> bool:
        return any(word in path.read_bytes() for path in self.job_files(run_id, suffix))

    def wait(self, ready: Callable[[], bool], limit_s: float = 120.0) -> bool:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if ready():
                return True
            time.sleep(0.002)
        return False

    def reach(self, moment: str, run_id: str) -> bool:
        """Wait until the run is in the middle of this moment."""
        wal = self.store.with_name(self.store.name + ".wal")
        phase = {"warmup": b'"warmup"', "drain": b'"drain"'}
        if moment == "launch":
            found = self.wait(lambda: bool(self.job_files(run_id, ".r0")))
            time.sleep(self.random.uniform(0, 1.0))
        elif moment in phase:
            found = self.wait(lambda: self.says(run_id, ".client", b'"phase","name":' + phase[moment]))
        elif moment == "commit":
            found = self.wait(lambda: self.says(run_id, ".client", b'"name":"steady"'))
            time.sleep(self.random.uniform(5.0, 7.0))  # five seconds of the flood first
            before = wal.stat().st_size if wal.exists() else 0
            found = found and self.wait(lambda: wal.exists() and wal.stat().st_size != before, 10.0)
        else:
            results = self.work / "results" / run_id
            found = self.wait(lambda: results.exists() and any(results.rglob("*")))
        return found

    def one(self, moment: str) -> None:
        """A run, killed at the moment, then resumed to its end."""
        known = {p.name for p in (self.work / "results").glob("*")}
        watcher = subprocess.Popen(
            self.twinrail("run", "D1", "--json"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert watcher.stderr is not None
        first = watcher.stderr.readline()
        run_id = first.split()[1].rstrip(":") if first.startswith("run ") else ""
        if not run_id or run_id in known:
            raise SystemExit(f"the run did not start: {first}{watcher.stderr.read()}")
        self.runs.append(run_id)
        hit = self.reach(moment, run_id)
        owner = self.owner_pid()
        for pid in (owner, watcher.pid):
            if pid:
                os.kill(pid, signal.SIGKILL)
        watcher.wait()
        self.hits[moment] += hit and owner is not None
        done = subprocess.run(
            self.twinrail("resume", run_id, "--json"), capture_output=True, text=True, timeout=300, check=False
        )
        said = done.stderr.strip().splitlines()[-1:] or [""]
        print(
            f"{run_id} killed in {moment:8} {'hit' if hit else 'MISSED'}; resume exit {done.returncode}: {said[0]}",
            flush=True,
        )

    def stop_owner(self) -> None:
        pid = self.owner_pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
            self.wait(lambda: not Path(f"/proc/{pid}").exists(), 20.0)

    def audit(self) -> tuple[int, int, int]:
        """Bytes lost, bytes doubled or wrong, processes left behind."""
        with duckdb.connect(str(self.store), read_only=True) as db:
            lost = doubled = 0
            jobs = db.execute(
                "select job_id, node from jobs where run_id in (select unnest(?))", [self.runs]
            ).fetchall()
            for job_id, node in jobs:
                for stream in ("stdout", "stderr"):
                    path = self.lab / node / "srv/twinrail/jobs" / job_id / stream
                    data = path.read_bytes() if path.exists() else b""
                    batches = db.execute(
                        'select "offset", length, sha256 from batches where job_id = ? and stream = ? order by 1',
                        [job_id, stream],
                    ).fetchall()
                    missing, twice = audit_stream(data, batches)
                    if missing or twice:
                        print(f"  {job_id}/{stream}: {missing} bytes missing, {twice} doubled or wrong")
                    lost += missing
                    doubled += twice
            lost += self.rows_missing(db)
        return lost, doubled, self.left_behind()

    def rows_missing(self, db: duckdb.DuckDBPyConnection) -> int:
        """Lines of server logs and ended requests that are not exactly one row each."""
        wrong = 0
        for job_id, node, kind in db.execute(
            "select job_id, node, kind from jobs where run_id in (select unnest(?)) and kind in ('server', 'client')",
            [self.runs],
        ).fetchall():
            path = self.lab / node / "srv/twinrail/jobs" / job_id / "stdout"
            data = path.read_bytes() if path.exists() else b""
            if kind == "server":
                table, expected = "log_lines", data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
                where = "job_id = ? and stream = 'stdout'"
            else:
                table, expected = "requests", data.count(b'"t":"done"')
                where = "attempt_id || '.client' = ?"
            rows = db.execute(f"select count(*) from {table} where {where}", [job_id]).fetchall()[0][0]
            if rows != expected:
                print(f"  {job_id}: {expected} lines on the node, {rows} rows in {table}")
                wrong += abs(rows - expected)
        return wrong

    def left_behind(self) -> int:
        """Processes on the nodes that belong to a job of ours."""
        left = 0
        for node in NODES:
            out = subprocess.run(
                ["bash", str(Path(__file__).with_name("lab.sh")), "exec", str(self.lab), node, "ps", "-eo", "pid,args"],
                capture_output=True,
                text=True,
                check=False,
            ).stdout
            ours = [x for x in out.splitlines() if "/srv/twinrail/" in x and "job_tail" not in x and "ps -eo" not in x]
            for line in ours:
                print(f"  left on {node}: {line[:150]}")
            left += len(ours)
        return left


def audit_stream(data: bytes, batches: list[tuple[int, int, str]]) -> tuple[int, int]:
    """(bytes not covered by any batch, bytes covered twice or whose hash differs)."""
    at = lost = doubled = 0
    for offset, length, digest in batches:
        if offset > at:
            lost += offset - at
        if offset < at:
            doubled += at - offset
        if hashlib.sha256(data[offset : offset + length]).hexdigest() != digest:
            doubled += length
        at = max(at, offset + length)
    return lost + max(0, len(data) - at), doubled


def main(argv: list[str]) -> int:
    """Exit 0 when nothing was lost, doubled or left behind and every moment was hit."""
    lab, rounds = Path(argv[0]).resolve(), int(argv[1])
    seed = int(argv[2]) if len(argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}, {rounds} rounds, flood {FLOOD} lines/s")
    campaign = Campaign(lab, seed)
    order = [MOMENTS[n % len(MOMENTS)] for n in range(rounds)]
    campaign.random.shuffle(order)
    for moment in order:
        campaign.one(moment)
    campaign.stop_owner()
    lost, doubled, left = campaign.audit()
    print("moments hit: " + ", ".join(f"{m} {campaign.hits[m]}" for m in MOMENTS))
    print(f"lost {lost}, doubled {doubled}, left behind {left}")
    missed = [m for m in order if not campaign.hits[m]]
    return 0 if not (lost or doubled or left or missed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
