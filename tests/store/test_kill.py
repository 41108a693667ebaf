from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from store.database import Store

# Batches of notes numbered by wall_ns, written by two threads; the state row tells the last number of each.
WRITING = """
import sys, threading
from store.database import Store
from store.records import Note, Offset
store = Store.open(sys.argv[1])
lock = threading.Lock()
def work(who):
    (seen,) = store.query(f"SELECT coalesce(max(wall_ns), -1) FROM notes WHERE who = '{who}'").rows[0]
    for n in range(seen + 1, 10**9):
        rows = [Note(wall_ns=n, who=who, text=str(i)) for i in range(20)]
        store.write([*rows, Offset(job_id=who, stream="s", offset=n)], urgent=bool(n % 3)).result()
        with lock:
            print(who, n, flush=True)
threads = [threading.Thread(target=work, args=(w,)) for w in "ab"]
for t in threads: t.start()
for t in threads: t.join()
"""


def test_after_kill_9_every_acknowledged_batch_is_there_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    acknowledged: dict[str, int] = {"a": -1, "b": -1}
    seed = random.Random(7)
    for _ in range(4):
        output = tmp_path / "out"
        with output.open("wb") as out:
            process = subprocess.Popen([sys.executable, "-c", WRITING, str(path)], stdout=out)
            deadline = time.monotonic() + 60
            while output.stat().st_size == 0 and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(seed.uniform(0.05, 1.5))
            process.kill()
            process.wait()
        lines = [line.split() for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]
        assert lines, "nothing was acknowledged"
        for who, n in lines:
            assert int(n) == acknowledged[who] + 1 or int(n) == acknowledged[who] + 2  # one may have gone untold
            acknowledged[who] = int(n)
        with Store.open(path) as store:
            for who, last in acknowledged.items():
                counts = store.query(
                    f"SELECT wall_ns, count(*), count(DISTINCT text) FROM notes WHERE who = '{who}' "
                    "GROUP BY 1 ORDER BY 1"
                ).rows
                assert counts == [(n, 20, 20) for n in range(len(counts))]
                assert len(counts) in {last + 1, last + 2}
                assert store.query(f"SELECT \"offset\" FROM offsets WHERE job_id = '{who}'").rows == [
                    (len(counts) - 1,)
                ]
