"""One thing taken out of a complete log turns the verdict to the right one; out of a partial one, never to PASS."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats.base import collect
from runners.formats.engine_log import parse_nccl
from runners.gates.rdma import Expectation, Verdict, judge
from tests.runners.formats.samples import CAPTURES
from tests.runners.gates.nccl_text import HCAS, NODES, Log, all_to_all, tp8pp2, tp16

RAILS = dict.fromkeys(NODES, HCAS)
WHOLE: dict[str, tuple[Callable[[], Log], Expectation]] = {
    "tp16": (tp16, Expectation(NODES, 8, tp=16, hcas=RAILS)),
    "tp8pp2": (tp8pp2, Expectation(NODES, 8, tp=8, pp=2, hcas=RAILS)),
    "ep16": (all_to_all, Expectation(NODES, 8, tp=8, ep=16, hcas=RAILS)),
}


def verdict(lines: list[str], expect: Expectation | None) -> Verdict:
    parsed = collect(parse_nccl(lines))
    return judge(parsed.rows, parsed.events, expect)


def dropped(lines: list[str], *words: str) -> list[str]:
    kept = [line for line in lines if not all(word in line for word in words)]
    assert len(kept) < len(lines)
    return kept


@pytest.fixture(params=WHOLE)
def whole(request: pytest.FixtureRequest) -> tuple[list[str], Expectation]:
    make, expect = WHOLE[request.param]
    return make().all(), expect


@pytest.mark.parametrize("told", [True, False])
def test_the_whole_log_passes(whole: tuple[list[str], Expectation], told: bool) -> None:
    lines, expect = whole
    found = verdict(lines, expect if told else None)
    assert found.gate == "PASS", found.reasons


@pytest.mark.parametrize("node", range(2))
@pytest.mark.parametrize("gpu", range(8))
def test_a_rank_without_its_lines(whole: tuple[list[str], Expectation], node: int, gpu: int) -> None:
    lines, expect = whole
    found = verdict(dropped(lines, f"{NODES[node]}:{1000 + gpu}:"), expect)
    # a pipeline pair has no neighbour on the node that proves the rank absent; the node's TP group does
    assert found.gate == "FAIL", found.reasons
    assert any("missing" in reason for reason in found.reasons)
    assert found.matrix[NODES[node]][str(gpu)]["state"] == "MISSING"


@pytest.mark.parametrize("node", NODES)
def test_a_node_without_its_lines(whole: tuple[list[str], Expectation], node: str) -> None:
    lines, expect = whole
    found = verdict(dropped(lines, f"{node}:"), expect)
    assert found.gate == "UNKNOWN"
    assert f"no NCCL lines from node {node}" in found.reasons


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("word", ["[send]", "[receive]"])
def test_a_direction(whole: tuple[list[str], Expectation], word: str, told: bool) -> None:
    lines, expect = whole
    assert verdict(dropped(lines, word), expect if told else None).gate == "UNKNOWN"


@pytest.mark.parametrize("told", [True, False])
def test_each_single_gdrdma(whole: tuple[list[str], Expectation], told: bool) -> None:
    lines, expect = whole
    places = [at for at, line in enumerate(lines) if "/GDRDMA" in line]
    for at in places[:: max(1, len(places) // 12)]:
        changed = [*lines[:at], lines[at].replace("/GDRDMA", ""), *lines[at + 1 :]]
        found = verdict(changed, expect if told else None)
        assert found.gate == "FAIL"
        assert any("host memory" in reason for reason in found.reasons)


@pytest.mark.parametrize("at", range(2))
def test_an_hca(whole: tuple[list[str], Expectation], at: int) -> None:
    lines, expect = whole
    kept = [line.replace(f"[{at}]{HCAS[at]}:1/RoCE ", "") if "node-b" in line else line for line in lines]
    assert kept != lines
    found = verdict(kept, expect)
    assert found.gate == "FAIL"
    assert any(f"node-b: {HCAS[at]} was not opened" in reason for reason in found.reasons)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("own", "word", "ends"), [(3, "[send]", (3, 12)), (12, "[receive]", (3, 12))])
def test_one_peer_of_one_rank_in_an_all_to_all(told: bool, own: int, word: str, ends: tuple[int, int]) -> None:
    make, expect = WHOLE["ep16"]
    lines = dropped(make().all(), f": {ends[0]}[", f"-> {ends[1]}[", word)
    found = verdict(lines, expect if told else None)
    assert found.gate == "UNKNOWN"
    place = f"{NODES[own // 8]} GPU {own % 8}: rank {own} of 16 shows no {word} channel"
    assert any(reason.startswith(place) for reason in found.reasons), found.reasons


def test_experts_on_rings_need_no_all_to_all() -> None:
    expect = Expectation(NODES, 8, tp=8, ep=16, hcas=RAILS)
    lines = tp16().all()
    assert verdict(lines, expect).gate == "UNKNOWN"
    assert verdict(lines, Expectation(NODES, 8, tp=8, ep=16, hcas=RAILS, all_to_all=False)).gate == "PASS"


SPOILT: dict[str, tuple[str, Callable[[str], str | None], str]] = {
    "a channel's line": ("] via NET/", lambda line: None, "UNKNOWN"),
    "its GPUDirect": ("] via NET/", lambda line: line.replace("/GDRDMA", ""), "FAIL"),
    "its transport": ("] via NET/", lambda line: re.sub(r"NET/IB/\d/GDRDMA", "NET/Socket/0", line), "FAIL"),
    "a rank's end of init": ("Init COMPLETE", lambda line: None, "FAIL"),
}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_spoilt_lines_in_any_number(data: st.DataObject) -> None:
    make, expect = WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))]
    lines = make().all()
    changes: dict[int, str | None] = {}
    worst = "UNKNOWN"
    for name in data.draw(st.lists(st.sampled_from(sorted(SPOILT)), min_size=1, max_size=3)):
        mark, spoil, gate = SPOILT[name]
        places = [at for at, line in enumerate(lines) if mark in line and at not in changes]
        at = data.draw(st.sampled_from(places))
        changes[at] = spoil(lines[at])
        worst = max(worst, gate, key=["UNKNOWN", "FAIL"].index)
    spoilt = [text for at, line in enumerate(lines) if (text := changes.get(at, line)) is not None]
    found = verdict(spoilt, data.draw(st.sampled_from([expect, None])))
    assert found.gate in ({"UNKNOWN", "FAIL"} if worst == "UNKNOWN" else {"FAIL"}), found.reasons


REAL = sorted(path for path in CAPTURES.glob("*/*.log") if "NCCL INFO" in path.read_text(errors="replace"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_a_real_log_without_any_one_line_is_never_better(path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()
    before = verdict(lines, None).gate
    assert before in ("FAIL", "UNKNOWN")
    for at in range(len(lines)):
        after = verdict([*lines[:at], *lines[at + 1 :]], None).gate
        assert after != "PASS"
        assert after in ("UNKNOWN", before) or (before, after) == ("UNKNOWN", "FAIL"), lines[at]
