"""A process that owns and serves a store of sample rows: `python -m tests.store.owner_process FOLDER [PORT]`.

Prints the URL when it serves; ends when its standard input is closed. FOLDER/in_process.pickle holds what the
questions of `questions()` answer here, in process.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from store.database import Store
from store.queries import all_queries, call
from store.share import serve
from tests.store.samples import load, one_of_each

ARGUMENTS: dict[str, object] = {
    "run": "r1", "attempt": "a1", "attempts": ["a1"], "name": "deployment 1", "job": "j1", "of_node": "n1",
    "win": "steady", "step_s": 1.0, "t0": 0, "t1": 2**62, "runs": ["r1", "r2"], "lives": ["L1"], "step": 1,
    "step_ms": 1000, "run_a": "r1", "run_b": "r2", "of_run": "r1", "of_life": "L1", "of_lives": ["L1"],
    "of_deployment": "deployment 1", "but": "L2", "of_tid": 1,
}  # fmt: skip


def questions() -> dict[str, str]:
    """Name -> SQL of every named query, asked about the sample rows."""
    found = {}
    for query in all_queries():
        names = [a.strip() for a in query.arguments.split(",") if a.strip() and ":=" not in a]
        found[query.name] = call(query.name, *(ARGUMENTS[n] for n in names))
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    store = Store.open(folder / "s.duckdb")
    if not store.query("FROM runs").rows:
        store.write([*one_of_each(1), *one_of_each(2), *load(seed=3)]).result()
    answers = {}
    for name, sql in questions().items():
        answer = store.query(sql)
        answers[name] = (answer.columns, answer.types, answer.rows)
    (folder / "in_process.pickle").write_bytes(pickle.dumps(answers))

    def on_order(order: str, role: str) -> str:
        with (folder / "orders.txt").open("a", encoding="utf-8") as f:
            f.write(f"{role} {order}\n")
        return f"accepted {order}"

    server = serve(
        store,
        token_files={"read": folder / "read.token", "order": folder / "order.token"},
        on_order=on_order,
        port=int(sys.argv[2]) if len(sys.argv) > 2 else 0,
    )
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()
    store.close()


if __name__ == "__main__":
    main()
