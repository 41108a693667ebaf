"""Launcher prefixes: each is taken off alone and nested, and a line without one stays as it is."""

from __future__ import annotations

import pytest

from runners.formats import prefix

LINE = "host-a:983:1261 [3] NCCL INFO Using network IB"


@pytest.mark.parametrize(
    ("before", "rank", "node", "received"),
    [
        ("[1,5]<stdout>:", 5, None, None),
        ("[1,5]<stderr>: ", 5, None, None),
        ("[5] ", 5, None, None),
        ("5: ", 5, None, None),
        ("[rank5]: ", 5, None, None),
        ("[default5]:", 5, None, None),
        ("server-1  | ", None, "server-1", None),
        ("[pod/decode-0/main] ", None, "decode-0", None),
        ("2026-11-29T10:00:00.123456789Z ", None, None, "2026-11-29T10:00:00.123456789Z"),
        ("server-1  | 2026-11-29T10:00:00.1Z [1,5]<stdout>:", 5, "server-1", "2026-11-29T10:00:00.1Z"),
    ],
)
def test_peels_launcher_prefixes(before: str, rank: int | None, node: str | None, received: str | None) -> None:
    found, rest = prefix.peel(before + LINE)
    assert found is not None
    assert (found.rank, found.node, found.received, rest) == (rank, node, received, LINE)


@pytest.mark.parametrize("line", [LINE, "[0] INFO ready", "[2026-11-29 10:00:00] text", "[rank 5] text", ""])
def test_leaves_other_lines(line: str) -> None:
    assert prefix.peel(line) == (None, line)


def test_process_prefix_names_ranks_and_folded_repeats() -> None:
    found, rest = prefix.peel("(RayWorkerProc_PP0_TP3 pid=8, ip=10.0.0.2) text [repeated 7x across cluster]")
    assert found is not None
    assert (found.node, found.pid, found.ranks, found.repeated, rest) == (
        "10.0.0.2", 8, {"pp": 0, "tp": 3}, 7, "text",
    )  # fmt: skip
