"""`twinrail read`: the JSON shape of DESIGN section 4, exit codes, big and hostile files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from console.read import read
from runners.formats import kinds
from runners.probes.base import EVENTS
from tests.runners.formats.samples import CAPTURES
from tests.runners.gates.nccl_text import NODES, tp16


def run(capsys: pytest.CaptureFixture[str], *files: Path | str, kind: str | None = None) -> tuple[int, dict[str, Any]]:
    code = read(list(files), kind=kind, json_out=True, list_kinds=False)
    return code, json.loads(capsys.readouterr().out)


def test_shape(capsys: pytest.CaptureFixture[str]) -> None:
    path = CAPTURES / "vllm-log/engine-stats-v1-0.9.log"
    code, found = run(capsys, path)
    assert code == 0
    assert found["schema"] == 1
    (item,) = found["files"]
    assert item["file"] == str(path)
    assert item["kind"] == "vllm_log"
    assert item["rows"][0]["kv_usage"] == 0.579
    assert (item["events"], item["skipped"], item["verdict"]) == ([], 0, None)


def test_the_verdict_of_one_log_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, CAPTURES / "nccl-log/two-nodes-two-roce-hca-fused-no-gdr.log")
    verdict = found["files"][0]["verdict"]
    assert code == 1
    assert verdict["gate"] == "FAIL"
    assert any("host memory" in reason for reason in verdict["reasons"])


def test_logs_of_two_nodes_are_judged_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name in NODES:
        paths.append(tmp_path / f"{name}.log")
        paths[-1].write_text("\n".join(tp16().lines[name]) + "\n")
    _, found = run(capsys, *paths)
    assert [item["verdict"]["gate"] for item in found["files"]] == ["UNKNOWN", "UNKNOWN"]
    assert found["verdict"]["gate"] == "PASS"
    assert len(found["verdict"]["matrix"]["node-b"]) == 8


def test_unknown_content_and_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear colleague,\n")
    code, found = run(capsys, letter)
    assert (code, found["files"][0]["kind"], found["files"][0]["rows"]) == (1, None, [])
    assert read([letter], kind="nonsense", json_out=True, list_kinds=False) == 2
    assert read([tmp_path / "absent"], kind=None, json_out=True, list_kinds=False) == 2
    assert read([], kind=None, json_out=True, list_kinds=False) == 2


def test_a_kind_can_be_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x"
    path.write_text("cpu  1 2 3 4\n")
    code, found = run(capsys, path, kind="proc_stat")
    assert (code, found["files"][0]["rows"][0]["user_jiffies"]) == (0, 1)


def test_gzip_crlf_utf16_and_bom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = (CAPTURES / "nvidia-smi/query-compute-apps-h200-load.csv").read_text()
    variants = {
        "a.gz": gzip.compress(line.encode()),
        "crlf": line.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + line.encode(),
        "utf16": line.encode("utf-16"),
    }
    rows = []
    for name, raw in variants.items():
        (tmp_path / name).write_bytes(raw)
        _, found = run(capsys, tmp_path / name)
        assert found["files"][0]["kind"] == "nvidia_smi_csv", name
        rows.append(found["files"][0]["rows"])
    assert all(item == rows[0] for item in rows)


def test_an_endless_line_is_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (CAPTURES / "sglang-log/decode-kv-full-queue5.log").read_bytes()
    path = tmp_path / "log"
    path.write_bytes(good + b"x" * 9_000_000 + b"\n" + good)
    _, found = run(capsys, path)
    (item,) = found["files"]
    assert (len(item["rows"]), item["cut_lines"]) == (6, 1)


def test_access_lines_are_dropped_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = (CAPTURES / "vllm-log/engine-stats-v1-0.9.log").read_text()
    access = 'INFO:     192.0.2.7:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    path = tmp_path / "log"
    for end in ("\n", "\r\n"):
        path.write_bytes((stats + (access * 3 + stats) * 900).replace("\n", end).encode())
        _, found = run(capsys, path)
        assert len(found["files"][0]["rows"]) == 901


def test_secrets_in_start_lines_are_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text(
        "(APIServer pid=1) INFO 11-29 15:22:32 [api_utils.py:286] non-default args: "
        "{'api_key': ['s3cretvalue9'], 'tokenizer': 'tiny', 'port': 1}\n"
    )
    read([path], kind="vllm_log", json_out=True, list_kinds=False)
    out = capsys.readouterr().out
    assert "non-default args" in out
    assert "s3cretvalue9" not in out
    assert "'tokenizer': 'tiny'" in out


def test_text_output_has_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_text(
        json.dumps(
            {
                "endpoint_type": "x\x1b[31m",
                "tokenizer_id": "t",
                "num_prompts": 1,
                "duration": 1,
                "model_id": "\x1b]0;x\x07",
            }
        )
    )
    assert (
        read(
            [path, CAPTURES / "nccl-log/sglang-tp16-h20-socket-fallback.log"],
            kind=None,
            json_out=False,
            list_kinds=False,
        )
        == 1
    )
    out = capsys.readouterr().out
    assert "RDMA gate: FAIL" in out
    assert all(char.isprintable() or char == "\n" for char in out)


def test_the_list_of_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert read([], kind=None, json_out=True, list_kinds=True) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {kind["name"] for kind in listed["kinds"]} == set(kinds.BY_NAME)
    assert all(kind["columns"] or kind["events"] for kind in listed["kinds"])
    meanings = {event["name"]: event["meaning"] for event in listed["events"]}
    assert {name for kind in listed["kinds"] for name in kind["events"]} | set(EVENTS) <= set(meanings)
    assert all(meanings.values())
    assert read([], kind=None, json_out=False, list_kinds=True) == 0
    out = capsys.readouterr().out
    assert "vllm_log: vLLM server log" in out
    for name, meaning in meanings.items():
        assert any(line.split() == [name, *meaning.split()] for line in out.splitlines()), name
    assert max(map(len, out.splitlines())) <= 160
