"""A spec that cannot be meant is refused with the key's name, before anything is sent."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runners.payload.loadgen import SpecError, parse_spec
from tests.runners.loadgen_rig import SCRIPT, spec

BASE = spec("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"isl": 0}, "isl: wants int 1 to"),
        ({"isl": 1.5}, "isl"),
        ({"isl": True}, "isl"),
        ({"osl": "4"}, "osl"),
        ({"isl": None}, "isl"),
        ({"api": "embeddings"}, "api: wants str completions or chat"),
        ({"concurency": 4}, "concurency: unknown key"),
        ({"concurrency": None}, "one of them is needed"),
        ({"url": "localhost:8000"}, "url"),
        ({"url": "ftp://x"}, "url"),
        ({"url": "http://h:99999"}, "Port out of range"),
        ({"api": "chat"}, "text, not token ids"),
        ({"vocab": [5]}, "vocab"),
        ({"vocab": [9, 5]}, "vocab"),
        ({"prefix_share": 1.1}, "prefix_share"),
        ({"budget_s": float("nan")}, "budget_s"),
        ({"cpus": []}, "cpus"),
        ({"headers": {"a": 1}}, "headers"),
        ({"inject": {"isl": 1, "osl": 1, "every_s": 0, "count": 1}}, "inject.every_s"),
        ({"inject": {"isl": 1}}, "inject."),
        ({"filler": 0}, "filler"),
        ({"filler": False, "inject": {"isl": 1, "osl": 1, "every_s": 1, "count": 1}}, "needs filler"),
    ],
)
def test_a_wrong_spec_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_spec({**BASE, **changes})


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"url": "http://h"}])
def test_what_is_no_spec_is_refused(raw: object) -> None:
    with pytest.raises(SpecError):
        parse_spec(raw)


@pytest.mark.parametrize(
    ("url", "api", "endpoint"),
    [
        ("http://h:1", "completions", "http://h:1/v1/completions"),
        ("http://h:1/", "chat", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1", "chat", "http://h:1/v1/chat/completions"),
        ("http://h:1/proxy/v1/", "completions", "http://h:1/proxy/v1/completions"),
        ("http://h:1/v1?key=1", "completions", "http://h:1/v1/completions?key=1"),
        ("http://h:1/custom/completions", "completions", "http://h:1/custom/completions"),
    ],
)
def test_the_route_follows_from_the_url(url: str, api: str, endpoint: str) -> None:
    prompt = "text" if api == "chat" else "ids"
    assert parse_spec({**BASE, "url": url, "api": api, "prompt": prompt}).endpoint == endpoint


def test_a_bad_spec_file_is_exit_2_with_one_json_line(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**BASE, "isl": -1}))
    done = subprocess.run([sys.executable, SCRIPT, "--spec", file], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert json.loads(done.stderr)["detail"].startswith("isl")


def test_a_key_that_is_not_set_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**BASE, "api_key_env": "NO_SUCH_KEY"}))
    done = subprocess.run([sys.executable, SCRIPT, "--spec", file], capture_output=True, check=False)
    assert done.returncode == 2
    assert "NO_SUCH_KEY is not set" in done.stderr.decode()


def test_a_missing_aiohttp_is_exit_78_and_names_the_interpreter() -> None:
    # -S: no site-packages, as on a node whose python has nothing installed
    done = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPT, "--spec", "-"], capture_output=True, check=False, input=b"{}"
    )
    assert (done.returncode, done.stdout) == (78, b"")
    report = json.loads(done.stderr)
    assert report["error"] == "missing_aiohttp"
    assert report["python"] == sys.executable


def test_the_script_is_python_3_9() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 9))
