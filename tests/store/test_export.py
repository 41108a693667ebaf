"""results/<RUN_ID>/ from a store: what is written, what is masked, what is marked as not known."""

import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from store.database import Store
from store.errors import StoreError
from store.export.document import run_document
from store.export.tree import commands_text, write_tree
from store.records import Attempt, Command, Gate, Life, Note, Phase, Record, Request, Run, Variable

MS = 1_000_000
START = 1_000_000 * MS


def _request(number: int, phase: str, *, status: str = "ok", sent: int = 0, measured: bool = True) -> Request:
    """Two tokens 10 ms apart, the first 100 ms after it was sent."""
    sent_ns = START + sent * MS
    good = status == "ok"
    return Request(
        run_id="r1",
        attempt_id="r1.a1",
        request_id=number,
        kind="load",
        phase=phase,
        measured=measured,
        status=status,
        error=None if good else "http_5xx",
        isl=4,
        osl=2,
        sent_ns=sent_ns,
        first_ns=sent_ns + 100 * MS if good else None,
        last_ns=sent_ns + 110 * MS if good else None,
        end_ns=sent_ns + 111 * MS,
        prompt_tokens=4 if good else None,
        output_tokens=2 if good else None,
        tokens_per_chunk="counted" if good else None,
        chunk_ns=[100 * MS, 110 * MS] if good else [],
        chunk_tokens=[1, 1] if good else [],
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    rows: list[Record] = [
        Run(
            run_id="r1",
            kind="run",
            deployment="d",
            plan="D1 D2",
            state="done",
            outcome="CLIENT_ERROR",
            created_wall_ns=1,
            spec='{"repeats": 2, "keep": true}',
        ),
        Life(life_id="r1.L1", run_id="r1", deployment="d", state="gone", started_wall_ns=1),
        Attempt(
            attempt_id="r1.a1",
            run_id="r1",
            ordinal=1,
            case_name="D1-C1",
            isl=4,
            osl=2,
            concurrency=1,
            life_id="r1.L1",
            state="done",
            outcome="OK",
            flags=["cache_warm"],
        ),
        Attempt(attempt_id="r1.a2", run_id="r1", ordinal=2, case_name="D2-C1", state="done", outcome="CLIENT_ERROR"),
        Attempt(attempt_id="r1.a3", run_id="r1", ordinal=2, case_name="D2-C1", state="void"),
        Phase(attempt_id="r1.a1", run_id="r1", name="ramp", node="n", start_mono_ns=START, start_wall_ns=1),
        Phase(
            attempt_id="r1.a1", run_id="r1", name="steady", node="n", start_mono_ns=START + 200 * MS, start_wall_ns=2
        ),
        _request(1, "ramp"),
        _request(2, "steady", sent=200),
        _request(3, "steady", sent=320, status="failed"),
        Command(
            command_id="c1",
            run_id="r1",
            node="n1",
            purpose="server",
            text="vllm serve m --api-key ***",
            cwd="/x",
            env='{"HF_TOKEN": "***", "A": "it\'s"}',
            started_wall_ns=1,
            exit_code=0,
        ),
        Variable(run_id="r1", name="host.kernel", value="6.1", node="n1", source="reported", wall_ns=1),
        Variable(run_id="r1", name="host.kernel", value="6.2", node="n1", source="reported", wall_ns=2),
        Gate(run_id="r1", life_id="r1.L1", name="rdma", status="pass", detail="both rails", wall_ns=1),
        Note(run_id="r1", wall_ns=1, who="me", text="first try"),
    ]
    with Store.open(tmp_path / "s.duckdb") as found:
        found.write(rows).result()
        yield found


def test_the_document_counts_what_belongs_and_leaves_void_attempts_out(store: Store) -> None:
    document = run_document(store, "r1")
    assert [c["case"] for c in document["cases"]] == ["D1-C1", "D2-C1"]
    assert [len(c["attempts"]) for c in document["cases"]] == [1, 1]
    one = document["cases"][0]["attempts"][0]
    assert one["requests"] == {"ok": 1, "failed": 1, "timed_out": 0, "cut": 0}
    assert one["ttft_ms"] == {"n": 1, "mean": 100.0, "p50": 100.0, "p95": 100.0, "p99": 100.0}
    assert one["tpot_ms"]["p50"] == 10.0
    assert one["all"]["requests"]["ok"] == 2
    assert one["flags"] == ["cache_warm"]


def test_an_attempt_without_requests_has_null_figures_not_zeros(store: Store) -> None:
    other = run_document(store, "r1")["cases"][1]["attempts"][0]
    assert other["output_tps"] is None
    assert other["requests"] == {"ok": None, "failed": None, "timed_out": None, "cut": None}
    assert other["all"]["ttft_ms"]["p99"] is None


def test_an_unknown_run_is_said_so(store: Store) -> None:
    with pytest.raises(StoreError, match="no run is called"):
        run_document(store, "r2")


def test_the_tree_says_the_same_as_the_document(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_tree(store, "r1", target)
    document = run_document(store, "r1")
    rows = list(csv.DictReader((target / "summary.csv").open(encoding="utf-8")))
    assert [(r["case"], r["window"]) for r in rows] == [
        ("D1-C1", "steady"),
        ("D1-C1", "all"),
        ("D2-C1", "steady"),
        ("D2-C1", "all"),
    ]
    assert float(rows[0]["output_tps"]) == pytest.approx(document["cases"][0]["attempts"][0]["output_tps"])
    assert rows[2]["output_tps"] == ""  # not known is empty, not 0
    requests = [json.loads(x) for x in (target / "requests.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(r["request_id"], r["status"]) for r in requests] == [(1, "ok"), (2, "ok"), (3, "failed")]
    manifest = orjson.loads((target / "run_manifest.json").read_bytes())
    assert [v["value"] for v in manifest["variables"]] == ["6.2"]  # the newest
    text = (target / "run_manifest.txt").read_text(encoding="utf-8")
    assert "host.kernel [n1] = 6.2 (reported)" in text
    assert "gate.rdma = pass: both rails" in text
    assert "first try" in (target / "notes.md").read_text(encoding="utf-8")


def test_writing_again_replaces_and_leaves_fetched_files_alone(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_tree(store, "r1", target)
    (target / "server" / "n1.log").write_text("kept")
    before = (target / "summary.csv").read_bytes()
    write_tree(store, "r1", target)
    assert (target / "summary.csv").read_bytes() == before
    assert (target / "server" / "n1.log").read_text() == "kept"
    assert list(target.rglob("*.new")) == []


def test_a_folder_that_cannot_be_written_is_a_clear_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Make room or set results"):
        write_tree(store, "r1", tmp_path / "file" / "out")


def test_reproduce_is_a_shell_script_that_repeats_the_same_cases(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_tree(store, "r1", target)
    script = target / "reproduce.sh"
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "twinrail").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (fake / "twinrail").chmod(0o755)
    done = subprocess.run(
        ["sh", str(script), "--json"],
        capture_output=True,
        text=True,
        env={"PATH": f"{fake}:/usr/bin:/bin", "TWINRAIL_CONFIG": "my file.toml"},
        check=True,
    )
    assert done.stdout.splitlines() == [
        *("run", "D1", "D2", "--repeats", "2", "--deployment", "d", "--keep"),
        *("--config", "my file.toml", "--json"),
    ]


def test_a_planned_command_can_never_be_taken_for_evidence() -> None:
    planned = {"label": "planned", "node": "n", "text": "do", "env": None, "started_wall_ns": None, "cwd": None}
    text = commands_text([{**planned, "job_id": None, "exit_code": None}])
    assert "planned: not executed" in text
    assert commands_text([]).startswith("# no command of this kind was executed")
