"""Profiles side by side: families by scenario, the four shares of the first round, and what changed between two."""

from __future__ import annotations

from typing import Any

from store.analysis.families import ATTENTION, COMMUNICATION, FAMILIES, INDEXER, MOE

Report = dict[str, Any]


def four_shares(report: Report) -> dict[str, float | None]:
    """Exposed communication, indexer with attention, MoE and CPU gaps as shares of the ranks' wall clock, with all
    idleness beside them.

    The families count only instants they own, so the shares never overlap. CPU gaps are the idle time in which the
    host had not launched the work yet; None where the launches of most of it are not in the capture.
    """
    wall = sum(rank["wall_ns"] for rank in report["ranks"])

    def of(ns: int) -> float | None:
        return round(ns / wall, 6) if wall else None

    def compute(*families: str) -> int:
        return sum(rank["compute_ns"].get(family, 0) for rank in report["ranks"] for family in families)

    causes = [rank["host"]["idle_by_cause_ns"] for rank in report["ranks"]]
    idle = sum(rank["idle_ns"] for rank in report["ranks"])
    unknown = sum(cause["unknown"] for cause in causes)
    gaps = idle - unknown - sum(cause["queued"] for cause in causes)
    return {
        "communication_exposed": of(sum(rank["communication_exposed_ns"] for rank in report["ranks"])),
        "indexer_attention": of(compute(INDEXER, ATTENTION)),
        "moe": of(compute(MOE)),
        "cpu_gaps": of(gaps) if 2 * unknown <= idle else None,
        "idle": of(idle),
    }


def scenario(name: str, report: Report) -> dict[str, Any]:
    """One column of families x scenarios: wall-clock shares, shares of summed device time, and time per token.

    Times are those of the steps where the capture marks steps with their tokens, else of the whole capture (then
    ns_per_token is None).
    """
    kinds = [(kind, row) for rank in report["ranks"] for kind, row in rank["kinds"].items() if row["tokens"]]
    rows = [row for _, row in kinds] or report["ranks"]
    wall = sum(row["wall_ns"] for row in rows)
    ranks = len({(rank["rank"], rank["file"], rank["device"]) for rank in report["ranks"]}) or 1
    tokens = sum(row["tokens"] for _, row in kinds) or None
    owned, summed = dict.fromkeys(FAMILIES, 0), dict.fromkeys(FAMILIES, 0)
    for row in rows:
        for family, ns in row["compute_ns"].items():
            owned[family] += ns
        for family, ns in row["cumulative_ns"].items():
            summed[family] += ns
    owned[COMMUNICATION] = sum(row["communication_exposed_ns"] for row in rows)
    device = sum(summed.values())
    return {
        "scenario": name,
        "kinds": sorted({kind for kind, _ in kinds}),
        "wall_ns": wall,
        # Every rank works on the same tokens, so the tokens of one are the tokens of all.
        "wall_ns_per_token": round(wall / tokens) if tokens else None,
        "tokens": tokens // ranks if tokens else None,
        "idle_share": _ratio(sum(row["idle_ns"] for row in rows), wall),
        "overlap_share": _ratio(sum(row["overlap_ns"] for row in rows), wall),
        "families": {
            family: {
                "wall_share": _ratio(owned[family], wall),
                "device_share": _ratio(summed[family], device),
                "ns_per_token": round(summed[family] / tokens) if tokens else None,
            }
            for family in FAMILIES
            if owned[family] or summed[family]
        },
    }


def scenarios(named: list[tuple[str, Report]]) -> list[dict[str, Any]]:
    """The table families x scenarios: one entry a profile."""
    return [scenario(name, report) for name, report in named]


def diff(a: Report, b: Report, top: int = 40) -> dict[str, Any]:
    """What differs between two profiles, in the mean per rank: parts, families, kernels by name, gaps; b minus a."""
    ra, rb = len(a["ranks"]) or 1, len(b["ranks"]) or 1
    parts = ("wall_ns", "overlap_ns", "communication_exposed_ns", "copy_exposed_ns", "idle_ns")
    families = {
        family: _change(_family(a, family) / ra, _family(b, family) / rb)
        for family in FAMILIES
        if _family(a, family) or _family(b, family)
    }
    kernels_a = {row["name"]: row for row in a["kernels"]}
    kernels_b = {row["name"]: row for row in b["kernels"]}
    rows = [
        _kernel_change(name, kernels_a.get(name), kernels_b.get(name), ra, rb)
        for name in kernels_a.keys() | kernels_b.keys()
    ]
    rows.sort(key=lambda row: (-abs(row["total_ns"]["change"]), row["name"]))
    return {
        "parts": {part: _change(_mean(a, part), _mean(b, part)) for part in parts},
        "launches": _change(_mean(a, "launches"), _mean(b, "launches")),
        "kernels_launched": _change(_mean(a, "kernels"), _mean(b, "kernels")),
        "families": families,
        "kernels": rows[:top],
        "kernels_left_out": max(0, len(rows) - top),
        "gaps": {cause: _change(_cause(a, cause) / ra, _cause(b, cause) / rb) for cause in _causes(a, b)},
        "shares": {"a": four_shares(a), "b": four_shares(b)},
    }


def _mean(report: Report, key: str) -> float:
    ranks = report["ranks"]
    return sum(rank[key] for rank in ranks) / len(ranks) if ranks else 0.0


def _family(report: Report, family: str) -> int:
    return sum(rank["cumulative_ns"].get(family, 0) for rank in report["ranks"])


def _causes(*reports: Report) -> list[str]:
    return list(dict.fromkeys(c for r in reports for rank in r["ranks"] for c in rank["host"]["idle_by_cause_ns"]))


def _cause(report: Report, cause: str) -> int:
    return sum(rank["host"]["idle_by_cause_ns"].get(cause, 0) for rank in report["ranks"])


def _change(a: float, b: float) -> dict[str, Any]:
    return {"a": round(a), "b": round(b), "change": round(b) - round(a), "ratio": round(b / a, 4) if a else None}


def _kernel_change(name: str, a: dict[str, Any] | None, b: dict[str, Any] | None, ra: int, rb: int) -> dict[str, Any]:
    def of(row: dict[str, Any] | None, key: str, ranks: int) -> float:
        return row[key] / ranks if row else 0.0

    known = a or b or {}
    return {
        "name": name,
        "family": known.get("family"),
        "count": _change(of(a, "count", ra), of(b, "count", rb)),
        "total_ns": _change(of(a, "total_ns", ra), of(b, "total_ns", rb)),
        "mean_ns": _change(of(a, "mean_ns", 1), of(b, "mean_ns", 1)),
        "only_in": None if a and b else "a" if a else "b",
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
