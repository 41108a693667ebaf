"""`twinrail demo --headless --json`: the whole path on the embedded lab, its figures recomputed from the raw lines."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.lab.control import stop
from tests.runners import recompute

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))
pytestmark = pytest.mark.xdist_group("demo")


class Demo:
    """A finished tour: its document, its folder, and further verbs on the same lab."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "TWINRAIL_DEMO_DIR": str(folder)}
        self.done = self.verb("demo", "--headless", "--json", "--keep", timeout=180)

    def verb(self, *args: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TWINRAIL, *args], capture_output=True, text=True, env=self.env, timeout=timeout, check=False
        )

    def json(self, *args: str) -> Any:
        done = self.verb(*args, "--demo", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.done.stdout))

    @property
    def results(self) -> Path:
        return self.folder / "results" / str(self.document["run_id"])

    def attempts(self) -> list[dict[str, Any]]:
        return [a for c in self.document["cases"] for a in c["attempts"]]

    def raw(self, attempt_id: str) -> bytes:
        """The client's own lines as they lie on the node."""
        found = list(self.folder.glob(f"node*/home/.twinrail/jobs/{attempt_id}.client/stdout"))
        assert len(found) == 1
        return found[0].read_bytes()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    try:
        yield Demo(folder)
    finally:
        stop(folder)


def test_it_ends_well_and_says_that_it_is_simulated(demo: Demo) -> None:
    assert demo.done.returncode == 0, demo.done.stderr
    document = demo.document
    assert document["schema"] == 1
    assert document["simulated"] is True
    assert document["outcome"] == "OK"
    assert [c["case"] for c in document["cases"]] == ["D1-C1", "D2-C4", "D2-C8"]
    assert all("simulated" in a["flags"] for a in demo.attempts())


def _compare(found: dict[str, Any], truth: dict[str, Any]) -> None:
    assert {k: found["requests"][k] for k in ("ok", "failed", "timed_out")} == {
        k: truth["requests"][k] for k in ("ok", "failed", "timed_out")
    }
    assert found["tokens"] == pytest.approx(truth["tokens"])
    for rate in ("duration_s", "input_tps", "output_tps", "total_tps", "request_rate"):
        assert found[rate] == pytest.approx(truth[rate]), rate
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert found[metric] == pytest.approx(truth[metric]), metric


def test_json_sql_and_csv_equal_a_recomputation_from_the_raw_lines(demo: Demo) -> None:
    table = list(csv.DictReader((demo.results / "summary.csv").open(encoding="utf-8")))
    assert demo.attempts()
    for attempt in demo.attempts():
        truth = recompute.windows(recompute.read(demo.raw(attempt["attempt_id"])))
        for name, found in (("steady", attempt), ("all", attempt["all"])):
            window = truth[name]
            assert window is not None
            _compare(found, window)
            answer = demo.json("sql", f"from attempt_metrics('{attempt['attempt_id']}') where \"window\" = '{name}'")
            row = dict(zip([c["name"] for c in answer["columns"]], answer["rows"][0], strict=True))
            lines = [
                r
                for r in table
                if (r["window"], r["attempt"], r["case"]) == (name, str(attempt["attempt"]), _case_of(demo, attempt))
            ]
            assert len(lines) == 1
            for column in ("output_tps", "ttft_ms_p95", "tpot_ms_p50", "itl_ms_p99", "e2e_ms_mean"):
                metric, _, stat = column.rpartition("_")
                expected = window[metric][stat] if metric.endswith("_ms") else window[column]
                assert row[column] == pytest.approx(expected), column
                assert float(lines[0][column]) == pytest.approx(expected), column


def _case_of(demo: Demo, attempt: dict[str, Any]) -> str:
    return next(str(c["case"]) for c in demo.document["cases"] if attempt in c["attempts"])


def test_another_raw_line_gives_other_figures(demo: Demo) -> None:
    attempt = demo.attempts()[0]
    lines = recompute.read(demo.raw(attempt["attempt_id"]))
    victim = next(x for x in lines if x["t"] == "done" and x["measured"] and x["phase"] == "steady")
    victim["chunk_ns"] = [n + 50_000_000_000 for n in victim["chunk_ns"]]
    victim["first_ns"] += 50_000_000_000
    victim["last_ns"] += 50_000_000_000
    changed = recompute.windows(lines)["steady"]
    assert changed is not None
    assert changed["ttft_ms"]["p99"] != pytest.approx(attempt["ttft_ms"]["p99"])


def test_the_results_tree_holds_what_a_colleague_needs(demo: Demo) -> None:
    names = {p.relative_to(demo.results).as_posix() for p in demo.results.rglob("*") if p.is_file()}
    assert {"run_manifest.txt", "run_manifest.json", "server_cmd.txt", "bench_cmd.txt", "reproduce.sh"} <= names
    assert {"summary.csv", "requests.jsonl", "notes.md"} <= names
    assert sum(n.startswith("server/") for n in names) >= 2
    assert any(n.startswith("hardware/") for n in names)
    manifest = (demo.results / "run_manifest.txt").read_text(encoding="utf-8")
    assert manifest.startswith("SIMULATED")
    assert "gate.rdma = pass" in manifest
    assert os.access(demo.results / "reproduce.sh", os.X_OK)
    requests = [json.loads(x) for x in (demo.results / "requests.jsonl").read_text(encoding="utf-8").splitlines()]
    done = sum(demo.raw(a["attempt_id"]).count(b'"t":"done"') for a in demo.attempts())
    assert len(requests) == done > 0


def test_samples_of_every_kind_arrived_from_both_nodes(demo: Demo) -> None:
    for table in ("gpu_samples", "cpu_samples", "host_samples", "rail_samples", "log_lines"):
        answer = demo.json("sql", f"select node, count(*) from {table} group by node order by node")
        assert [r[0] for r in answer["rows"]] == ["node5", "node7"], table
    answer = demo.json("sql", "select source, max(running) from engine_samples group by source order by source")
    assert {r[0] for r in answer["rows"]} == {"log", "metrics"}
    assert all(r[1] >= 1 for r in answer["rows"])


def test_past_runs_can_be_listed_and_shown_without_starting_anything(demo: Demo) -> None:
    run_id = demo.document["run_id"]
    assert [r["run_id"] for r in demo.json("runs")["runs"]] == [run_id]
    shown = demo.json("show", run_id)
    assert shown["cases"] == demo.document["cases"]
    names = {v["name"] for v in demo.json("show", run_id, "--manifest")["variables"]}
    assert {"deployment.engine", "host.kernel", "gpu.0.name"} <= names
    commands = demo.json("show", run_id, "--commands")["commands"]
    assert {c["purpose"] for c in commands} == {"server", "bench", "probe"}
    assert all(c["exit_code"] is not None for c in commands)
    text = demo.verb("show", run_id, "--demo").stdout
    assert "SIMULATED" in text
    assert "D2-C8" in text


def test_nothing_runs_on_the_nodes_afterwards_and_ended_jobs_can_be_reaped(demo: Demo) -> None:
    jobs = demo.json("jobs")["jobs"]
    assert jobs
    assert {j["state"] for j in jobs} == {"exited"}


def test_wrong_usage_is_told_apart_from_trouble(demo: Demo) -> None:
    wrong = demo.verb("run", "D22", "--demo")
    assert wrong.returncode == 2
    assert "Did you mean 'D2'" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert demo.verb("sql", "drop table runs", "--demo").returncode == 2
    gone = demo.verb("show", "never", "--demo")
    assert gone.returncode == 3
    assert "twinrail runs" in gone.stderr
    told = json.loads(demo.verb("show", "never", "--demo", "--json").stdout)
    assert (told["schema"], told["exit"]) == (1, 3)
    assert "twinrail runs" in told["error"]


def test_a_dry_run_shows_commands_and_does_nothing(demo: Demo) -> None:
    before = demo.json("runs")["runs"]
    plan = demo.json("run", "D2", "--dry-run", "--repeats", "2")
    assert plan["label"] == "planned"
    assert [c["purpose"] for c in plan["commands"]] == ["server", "server", "bench D2-C4", "bench D2-C8"]
    assert len(plan["attempts"]) == 4
    assert plan["longest_s"] > 0
    assert demo.json("runs")["runs"] == before


def test_check_explains_every_verdict(demo: Demo) -> None:
    checks = demo.json("check")
    assert checks["ok"] is True
    assert {c["name"] for c in checks["checks"]} >= {"ssh", "disk", "clock", "gpu", "client", "rdma"}
    rdma = next(c for c in checks["checks"] if c["name"] == "rdma")
    assert rdma["status"] == "unknown"
    assert rdma["fix"]
