"""`twinrail search`: bad usage is told before anything starts; a search is printed with its answers in words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.verbs.search import SearchRequest, print_search

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))
CONFIG = '[[nodes]]\nname = "n"\nhost = "local"\n[deployments.d]\nengine = "sim"\nnodes = ["n"]\n'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["D7"], "no case is called 'D7'"),
        (["D2", "--deployment", "x"], "no deployment is called 'x'"),
        (["D2", "--step", "0"], "--step"),
        (["rate"], "request_rate"),
    ],
)
def test_bad_usage_is_exit_code_two_and_starts_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    path = tmp_path / "twinrail.toml"
    path.write_text(CONFIG + "[cases.rate]\nisl = 8\nosl = 8\nrequest_rate = 2\n")
    done = subprocess.run(
        [TWINRAIL, "search", *words, "--config", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["twinrail.toml"]


def test_only_what_was_asked_is_ordered() -> None:
    request = SearchRequest("D2", repeats=1, stop_at_slo=False)
    assert request.params() == {"what": "D2", "keep": False, "repeats": 1, "stop_at_slo": False}


def point(concurrency: int, outcome: str, n: int, **more: Any) -> dict[str, Any]:
    stats = {"n": n, "mean": None, "p50": None, "p95": None, "p99": 12.0 if n else None}
    known = {
        "concurrency": concurrency,
        "request_rate": None,
        "outcome": outcome,
        "repeats": 3 if n else 0,
        "detail": None,
        "waiting": None,
    }
    rates = {"output_tps": 100.0 * n if n else None, "input_tps": None, "spread_pct": None}
    return {**known, **rates, **dict.fromkeys(("ttft_ms", "tpot_ms"), stats), **more}


def test_points_stop_and_answers_are_printed_and_what_is_not_known_is_missing_never_zero(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = {"concurrency": 16, "output_tps": 6000.0, "input_tps": None, "bounded_by": "OOM", "above": 20}
    document = {
        "points": [
            point(1, "OK", 60),
            point(32, "OOM", 0, detail="rank 0: \x1b[31mout of memory"),
            point(16, "OK", 300),
        ],
        "stopped": "OOM",
        "stopped_detail": "at concurrency 32",
        "answers": {"max_successful": answer, "max_tps": answer, "max_within_slo": None},
    }
    print_search(document)
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1", "16", "32"]
    assert "~12.0" in lines[1]  # P99 of 60 requests
    assert "~12.0" not in lines[2]
    assert " 0.0" not in lines[3]
    assert "\x1b" not in shown
    assert "stopped: OOM: at concurrency 32" in lines
    assert "max_successful: concurrency 16, 6000.0 out tok/s, – in tok/s; bounded by OOM at 20" in lines
    assert "max_within_slo: none" in lines
