"""What comes out: text, HTML, columns, windows, diffs, scenarios and the ten questions, and the exit codes."""

from __future__ import annotations

import gzip
import json
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from console.analyze import analyze as command
from store.analysis import columns
from store.analysis.compare import diff, scenarios
from store.analysis.ingest import ingest
from store.analysis.page import page
from store.analysis.report import Options, analyze
from store.analysis.text import duration, kernel_name, render
from tests.store.analysis.builder import TRACES, annotation, call, copy, kernel, write

DECODE = TRACES / "vllm-mi300x-decode-rank0.json.gz"
PREFILL = TRACES / "vllm-b200-tp8-rank0.json.gz"


def test_the_text_adds_up_and_names_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert command([DECODE]) == 0
    text = capsys.readouterr().out
    assert "adds up to (wall)" in text
    assert "compute: MoE" in text
    assert "this capture cannot tell, because" in text
    assert "kernels that last" in text
    assert "hipGraphLaunch" in text


def test_no_name_breaks_a_line_of_a_table(tmp_path: Path) -> None:
    long = "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlagsAndMore"
    rows = [
        kernel("a_gemm", 0, 5),
        kernel("b" * 200, 20, 5),
        call(long, 1, 90_000),
        annotation("step[DECODE bs=8]", 0, 9),
    ]
    lines = render(analyze([write(tmp_path / "t.json", rows)]), 15, 80).splitlines()
    (told,) = [line for line in lines if line.lstrip().startswith("cudaOccupancy")]
    assert told.split()[1:] == ["1", *(["90.00", "ms"] * 3)]


@pytest.mark.parametrize("name", ["vllm-mi300x-decode-rank0.json.gz", "h800-deepseek-train.json.gz"])
def test_the_text_fits_80_columns_and_uses_more_where_there_are_more(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = {}
    for width in (80, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        assert command([TRACES / name]) == 0
        lines = capsys.readouterr().out.splitlines()
        longest[width] = max(map(len, lines))
        assert longest[width] <= width
        assert not any(line.strip() in ("%", "graphs") for line in lines), "a table row was broken"
    assert longest[160] > 100


def test_kernel_names_are_cut_where_they_say_least() -> None:
    tensile = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x32x512_MI16x16x1_WG32_8_1"
    assert kernel_name(tensile, 30) == "Cijk_Alik_Bljk_BBS…MT16x32x512"
    assert kernel_name("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", 28) == "nvjet_tst_192x192_…_bias_TNN"
    wrapper = (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda"
    )
    assert kernel_name(wrapper, 28) == "elementw…direct_copy_kernel…"
    assert kernel_name(wrapper, 60) == "elementwise_kernel…direct_copy_kernel_cuda"
    assert kernel_name("void moe::dev::routing::indexKernel<int>(int*, int)", 24) == "indexKernel<int>(int*, …"
    assert kernel_name("void ns::short<int>(int)", 40) == "void ns::short<int>(int)"


def test_lengths_and_gaps_are_classes_between_two_bounds() -> None:
    rank = analyze([DECODE])["ranks"][0]
    text = render(analyze([DECODE]))
    for row, after in pairwise(rank["chains"]["kernel_lengths"]):
        if after["count"] and after["below_ns"]:
            assert f"{duration(row['below_ns'])} to {duration(after['below_ns'])}" in text


def test_two_captures_of_one_rank_are_not_compared_as_ranks(tmp_path: Path) -> None:
    twice = tmp_path / "later.json.gz"
    twice.write_bytes(DECODE.read_bytes())
    answers = {row["question"]: row for row in analyze([DECODE, twice])["questions"]}
    for question in ("Do the ranks end together?", "Are expert tokens out of balance?"):
        assert answers[question]["answer"] is None
        assert "the same rank" in answers[question]["because"]


def test_the_page_needs_nothing_from_elsewhere() -> None:
    html = page(analyze([TRACES / "a100-rank-0.json.gz", TRACES / "a100-rank-1.json.gz"]))
    assert not re.search(r"https?:|src=|@import|url\(|<link|<script", html)
    assert "idle: what the host did" in html
    assert html.count("<table") == html.count("</table></div>")


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert command([DECODE], json_out=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert {"ranks", "kernels", "unmatched", "stragglers", "problems"} <= document.keys()
    row = document["kernels"][0]
    assert {"name", "family", "count", "total_ns", "mean_ns"} == row.keys()
    assert row["mean_ns"] == round(row["total_ns"] / row["count"])
    assert sum(kernel["count"] for kernel in document["kernels"]) == document["ranks"][0]["kernels"]


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "x.json"
    bad.write_text("nothing")
    assert command([bad]) == 2
    assert "No file could be analysed" in capsys.readouterr().out
    assert command([tmp_path / "missing.json"]) == 2
    assert command([]) == 2
    assert command([bad, DECODE]) == 0
    assert command([DECODE], diff=True) == 2
    assert command([DECODE], window=(5, 3)) == 2
    assert command([DECODE], html=tmp_path / "no" / "folder.html") == 3
    rules = tmp_path / "rules"
    rules.write_text("Nonsense\tx\n")
    assert command([DECODE], families=rules) == 2
    assert "line 1" in capsys.readouterr().err


def test_names_from_a_capture_cannot_reach_the_terminal_or_the_page(tmp_path: Path) -> None:
    evil = 'evil\x1b[2J\x07<script>alert("x")</script>\u202e_gemm'
    report = analyze([write(tmp_path / "t.json", [kernel(evil, 0, 5)])])
    text, html = render(report), page(report)
    assert not any(mark in text for mark in ("\x1b", "\x07", "\u202e"))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html


def test_the_page_shows_the_parts_of_every_rank() -> None:
    html = page(analyze([TRACES / "a100-rank-0.json.gz", TRACES / "a100-rank-1.json.gz"]))
    assert html.count("adds up to (wall)") == 2
    assert "communication exposed" in html
    assert "Arriving last at collectives" in html


def test_a_window_is_split_on_top_of_the_whole(tmp_path: Path) -> None:
    rows = [kernel("a_gemm", 100, 10), copy(120, 10), kernel("b_gemm", 140, 10)]
    path = write(tmp_path / "t.json", rows)
    (rank,) = analyze([path], Options(window=(5_000, 25_000)))["ranks"]
    window = rank["window"]
    assert (window["wall_ns"], window["compute_ns"], window["copy_exposed_ns"]) == (20_000, {"GEMM": 5_000}, 5_000)
    assert window["idle_ns"] == 10_000
    assert rank["wall_ns"] == 50_000
    (rank,) = analyze([path], Options(window=(90_000_000, 95_000_000)))["ranks"]
    assert rank["window"]["wall_ns"] == 0


def test_a_window_for_perfetto_holds_its_events_their_launches_and_nothing_else(tmp_path: Path) -> None:
    rows = [annotation("step[DECODE bs=1]", 0, 60), call("cudaLaunchKernel", 1, 2, correlation=1)]
    rows += [call("cudaLaunchKernel", 4, 2, correlation=2)]
    rows += [kernel("a_gemm", 10, 10, correlation=1), kernel("b_gemm", 40, 10, correlation=2)]
    path = write(tmp_path / "t.json", rows, username="someone")
    out = tmp_path / "window.json.gz"
    assert command([path], perfetto=out, window=(0.025, 0.045)) == 0
    text = gzip.decompress(out.read_bytes()).decode()
    assert "someone" not in text
    events = json.loads(text)["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert [(event["name"], event["ts"], event["dur"]) for event in kernels] == [("b_gemm", 30.0, 10.0)]
    assert [event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"] == [2]
    flows = [event["ph"] for event in events if event.get("cat") == "ac2g"]
    assert flows == ["s", "f"]


def test_a_window_can_be_read_back(tmp_path: Path) -> None:
    out = tmp_path / "all.json"
    assert command([DECODE], perfetto=out) == 0
    (again,), (first,) = analyze([out])["ranks"], analyze([DECODE])["ranks"]
    assert again["compute_ns"] == first["compute_ns"]
    assert again["idle_ns"] == first["idle_ns"]


def test_columns_give_the_same_report_without_the_trace_being_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / PREFILL.name
    path.write_bytes(PREFILL.read_bytes())
    found = ingest(path)
    plain = analyze([path])
    assert columns.save(path, found)
    monkeypatch.setattr("store.analysis.report.ingest", lambda _: pytest.fail("the trace was parsed again"))
    assert analyze([path], Options(columns=True)) == plain


def test_columns_of_another_state_of_the_file_are_not_used(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("a_gemm", 0, 5)])
    assert columns.save(path, ingest(path))
    write(path, [kernel("a_gemm", 0, 5), kernel("b_gemm", 9, 5)])
    assert analyze([path], Options(columns=True))["ranks"][0]["kernels"] == 2


@pytest.mark.parametrize("damage", ["meta", "events", "names"])
def test_damaged_columns_are_read_anew(damage: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("a_gemm", 0, 5)])
    assert columns.save(path, ingest(path))
    folder = columns.folder_of(path)
    if damage == "meta":
        (folder / "meta.json").write_text("{")
    elif damage == "events":
        (folder / "0.events.parquet").write_bytes(b"PAR1")
    else:
        meta = json.loads((folder / "meta.json").read_bytes())
        meta["timelines"][0]["names"] = []
        (folder / "meta.json").write_text(json.dumps(meta))
    assert analyze([path], Options(columns=True))["ranks"][0]["kernels"] == 1


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("a_gemm", 0, 5)])
    foreign = columns.folder_of(path)
    foreign.mkdir()
    (foreign / "precious.txt").write_text("mine")
    assert not columns.save(path, ingest(path))
    assert (foreign / "precious.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["t.json", "t.json.columns"]


def test_columns_can_be_queried_by_hand(tmp_path: Path) -> None:
    import duckdb

    path = write(tmp_path / "t.json", [kernel("a_gemm", 0, 5), kernel("a_gemm", 9, 5)])
    assert columns.save(path, ingest(path))
    events, names = (columns.folder_of(path) / f"0.{what}.parquet" for what in ("events", "names"))
    joined = f"'{events}' e JOIN '{names}' n ON n.id = e.name"
    rows = duckdb.sql(f'SELECT n.family, n.text, sum(e."end" - e.start) FROM {joined} GROUP BY ALL').fetchall()
    assert rows == [("GEMM", "a_gemm", 10_000)]


def test_a_folder_of_captures_is_read_as_its_files(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"rank{rank}.json", [kernel("a_gemm", 0, 5)], rank=rank)
    (tmp_path / "notes.txt").write_text("not a capture")
    assert [rank["rank"] for rank in analyze([tmp_path])["ranks"]] == [0, 1]


def test_big_files_are_read_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.analysis.report._WORTH_A_PROCESS", 1)
    paths = [TRACES / "a100-rank-0.json.gz", TRACES / "a100-rank-1.json.gz"]
    assert analyze(paths, Options(workers=2)) == analyze(paths, Options(workers=1))


def test_a_process_that_dies_costs_its_file_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.analysis.report._WORTH_A_PROCESS", 1)
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(dying))
    report = analyze([TRACES / "a100-rank-0.json.gz", TRACES / "a100-rank-1.json.gz"], Options(workers=2))
    assert report["ranks"] == []
    assert report["problems"][0].startswith("a100-rank-0.json.gz: its analysis ended early (signal 9)")


def test_a_diff_names_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write(tmp_path / "a.json", [kernel("a_gemm", 0, 10), kernel("x_rmsnorm", 20, 5)])
    after = write(tmp_path / "b.json", [kernel("a_gemm", 0, 4), kernel("y_rmsnorm", 20, 5)])
    found = diff(analyze([before]), analyze([after]))
    assert found["families"]["GEMM"] == {"a": 10_000, "b": 4_000, "change": -6_000, "ratio": 0.4}
    assert found["families"]["Norm/Activation"]["change"] == 0
    rows = {row["name"]: row for row in found["kernels"]}
    assert (rows["x_rmsnorm"]["only_in"], rows["y_rmsnorm"]["only_in"], rows["a_gemm"]["only_in"]) == ("a", "b", None)
    assert found["parts"]["idle_ns"]["change"] == 6_000
    assert command([before, after], diff=True) == 0
    text = capsys.readouterr().out
    assert "-6.00 us" in text
    assert max(map(len, text.splitlines())) <= 80


def test_scenarios_give_shares_and_time_per_token(capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[tuple[str, dict[str, Any]]] = [("decode", analyze([DECODE])), ("prefill", analyze([PREFILL]))]
    decode, prefill = scenarios(reports)
    assert (decode["tokens"], prefill["tokens"]) == (32, 888)
    assert decode["wall_ns_per_token"] == round(10_743_181 / 32)
    assert decode["families"]["MoE"]["wall_share"] == pytest.approx(7_789_086 / 10_743_181, abs=1e-6)
    assert prefill["families"]["Communication"]["wall_share"] == pytest.approx(2_141_501 / 84_487_178, abs=1e-6)
    assert sum(row["device_share"] for row in decode["families"].values()) == pytest.approx(1, abs=1e-4)
    assert command([DECODE, PREFILL], scenarios=True) == 0
    assert "wall per token" in capsys.readouterr().out


@pytest.mark.parametrize("count", [2, 3, 7])
def test_any_number_of_scenarios_fits_80_columns(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    named = [tmp_path / f"decode of a long name, concurrency {n}.json.gz" for n in range(count)]
    for path in named:
        path.symlink_to(DECODE)
    assert command(named, scenarios=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line for line in lines if line.split()[:1] == ["MoE"]]
    assert sum(len(re.findall(r"72\.5 %", line)) for line in shown) == count
    assert sum(len(re.findall(r"243\.41 us", line)) for line in shown) == count


def answers(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The ten answers by the question's first words."""
    return {" ".join(row["question"].split()[:3]): row for row in report["questions"]}


def test_ten_questions_are_always_answered_or_said_to_be_out_of_reach(tmp_path: Path) -> None:
    for report in (analyze([DECODE]), analyze([]), analyze([write(tmp_path / "t.json", [kernel("a_gemm", 0, 5)])])):
        assert len(report["questions"]) == 10
        assert all((row["answer"] is None) != (row["because"] is None) for row in report["questions"])


def test_what_a_prefill_does_to_decode_is_measured(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    at = 0.0
    for number, (name, length) in enumerate(
        [
            ("step[DECODE bs=4]", 10),
            ("step[DECODE bs=4]", 10),
            ("step[EXTEND bs=1 toks=4096]", 200),
            ("step[DECODE bs=4]", 10),
        ]
    ):
        rows += [annotation(name, at, 5), call("cudaLaunchKernel", at + 1, 1, correlation=number)]
        rows += [kernel("a_gemm", at + 3, length, correlation=number)]
        at += length + 5
    answer = answers(analyze([write(tmp_path / "t.json", rows)]))["Why are decode"]
    assert "decode waits 210.00 us (median of 1)" in answer["answer"]
    assert answer["numbers"]["delays"][0]["prefill_ns"] == 200_000


def test_the_indexer_is_weighed_against_attention(tmp_path: Path) -> None:
    rows = [kernel("mqa_logits_fp8", 0, 30), kernel("sparse_attn_fwd_kernel", 40, 70)]
    answer = answers(analyze([write(tmp_path / "t.json", rows)]))["What does the"]
    assert "30.0 % of the two together" in answer["answer"]


def test_decode_batches_without_a_graph_are_named(tmp_path: Path) -> None:
    rows = [annotation("step[DECODE bs=8]", 0, 5), call("cudaGraphLaunch", 1, 1, correlation=1)]
    rows += [kernel("a_gemm", 10, 5, correlation=1)]
    rows += [annotation("step[DECODE bs=24]", 20, 5), call("cudaLaunchKernel", 21, 1, correlation=2)]
    rows += [kernel("a_gemm", 30, 5, correlation=2)]
    answer = answers(analyze([write(tmp_path / "t.json", rows)]))["Do graphs cover"]
    assert answer["numbers"]["batches_without_graph"] == [24]


def test_four_shares_of_the_first_round() -> None:
    shares = analyze([PREFILL])["shares"]
    assert shares == {
        "communication_exposed": pytest.approx(2_141_501 / 84_487_178, abs=1e-6),
        "indexer_attention": pytest.approx(781_592 / 84_487_178, abs=1e-6),
        "moe": pytest.approx(5_841_626 / 84_487_178, abs=1e-6),
        "cpu_gaps": pytest.approx((72_890_696 - 2_207_080) / 84_487_178, abs=1e-6),
        "idle": pytest.approx(72_890_696 / 84_487_178, abs=1e-6),
    }


def test_cpu_gaps_are_not_claimed_where_the_launches_are_missing(tmp_path: Path) -> None:
    shares = analyze([write(tmp_path / "t.json", [kernel("a_gemm", 0, 5), kernel("a_gemm", 20, 5)])])["shares"]
    assert shares["cpu_gaps"] is None
    assert shares["idle"] == pytest.approx(15 / 25)
