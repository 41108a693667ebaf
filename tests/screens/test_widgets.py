"""Panels by themselves: harmless text, exact widths, numbers that line up, charts that say what they were given."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult

from screens.widgets.bars import TextPanel
from screens.widgets.chart import Chart, Plot, Series, nice
from screens.widgets.devices import Devices, throttled
from screens.widgets.lamps import _STATES, lamp
from screens.widgets.logview import LogView
from screens.widgets.rails import worth_showing
from screens.widgets.table import Column, Table, cut
from screens.widgets.text import (
    Line,
    ago,
    bar,
    clean,
    crop,
    fit,
    line,
    milli,
    num,
    short,
    span_s,
    spark,
    width_of,
    wrap,
)
from screens.widgets.timeline import PhaseBit, PhaseStrip


class Stage(App[None]):
    """A panel on an empty screen."""

    def __init__(self, panel: Any) -> None:
        super().__init__()
        self.panel = panel

    def compose(self) -> ComposeResult:
        yield self.panel


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_cleaned_text_has_nothing_a_terminal_acts_on(text: str) -> None:
    kept = clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for c in kept)
    assert len(kept) == len(text)


def test_cleaned_text_is_bounded() -> None:
    assert len(clean("x" * 100_000)) == 4000


@given(st.text(alphabet="ab 漢字é…", max_size=40), st.integers(0, 30), st.sampled_from("<>"))
@settings(max_examples=200, deadline=None)
def test_fitted_text_has_exactly_its_width(text: str, width: int, align: str) -> None:
    assert cell_len(fit(text, width, align)) == width


@given(st.lists(st.tuples(st.text(alphabet="ab漢", max_size=9), st.just("")), max_size=6), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_cropped_spans_never_exceed_the_room(spans: list[tuple[str, str]], width: int) -> None:
    assert width_of(crop(spans, width)) <= width


@given(st.lists(st.tuples(st.text(alphabet="ab漢 ", max_size=30), st.just("")), max_size=4), st.integers(4, 20))
@settings(max_examples=100, deadline=None)
def test_wrapped_lines_fit_and_lose_nothing(spans: list[tuple[str, str]], width: int) -> None:
    whole = Line(tuple(spans))
    lines = wrap((whole,), width)
    assert all(width_of(entry.spans) <= width for entry in lines)
    assert lines[0].text + "".join(entry.text[2:] for entry in lines[1:]) == whole.text


def test_numbers_line_up_and_missing_ones_are_dashes() -> None:
    assert [num(v, 1, 6) for v in (1.25, None, float("nan"))] == ["   1.2", "     –", "     –"]
    assert [short(v) for v in (143, 9_400, 146_000, 2_100_000, None)] == ["143", "9.4k", "146k", "2.1M", "–"]
    assert [milli(v) for v in (4.821, 41.23, 812.4, 13_040.0)] == ["4.82", "41.2", "812.4", "13040"]
    assert [span_s(v) for v in (0.4, 42, 192, 3850, 100_000, -5)] == [
        "0.4 s",
        "42 s",
        "03:12",
        "1:04:10",
        "1 d 03 h",
        "-5.0 s",
    ]
    assert [ago(v) for v in (5, 700, 7_300, 400_000)] == ["5 s", "12 min", "2 h", "5 d"]


def test_sparklines_scale_and_leave_gaps_for_missing_values() -> None:
    assert spark([0, 5, None, 10], 5, 10) == " ▁▄ ▇"
    assert spark([0, 0], 2) == "▁▁"
    assert spark([1, 2, 3], 0) == ""
    assert bar(0.5, 4) == "▪▪··"
    assert bar(None, 4) == "····"


@given(st.floats(1e-6, 1e12))
@settings(max_examples=100, deadline=None)
def test_axis_tops_are_round_and_close(value: float) -> None:
    top = nice(value)
    assert value <= top * (1 + 1e-9)
    assert top <= value * 2


def test_states_have_signs_that_do_not_depend_on_colour() -> None:
    by_role: dict[str, set[str]] = {}
    for sign, role in _STATES.values():
        by_role.setdefault(role, set()).add(sign)
    assert not by_role["bad"] & by_role["ok"]
    assert not by_role["bad"] & by_role["warn"]
    assert not by_role["warn"] & by_role["ok"]
    assert lamp("never heard of") == ("?", "warn")


async def test_a_chart_draws_its_curve_limits_and_marks() -> None:
    chart = Chart("t")
    async with Stage(chart).run_test(size=(60, 12)) as pilot:
        xs = [float(i) for i in range(100)]
        rising = Series("up", "one", xs, [x / 2 for x in xs])
        chart.show(Plot((rising,), 0.0, 99.0, marks=((50.0, "steady"),), limits=((40.0, "SLO"),)))
        rows = chart.plain().splitlines()
        assert rows[1].startswith(" 60 ┤")
        assert rows[-2].startswith("  0 ┤")
        assert "steady" in rows[-1]
        assert rows[-1].endswith("01:39")
        below_limit = rows[5:-1]
        first = [next(i for i, c in enumerate(r[5:]) if "⠀" < c <= "⣿") for r in below_limit]
        assert first == sorted(first, reverse=True), "a rising curve rises"
        await pilot.press("tab", "left", "left")
        assert chart.at is not None
        assert f"up {milli(round(chart.at) / 2)}" in "".join(t for t, _ in chart.side_title().spans)


async def test_a_chart_breaks_where_values_are_missing() -> None:
    chart = Chart("t")
    async with Stage(chart).run_test(size=(60, 12)):
        ys: list[float | None] = [5.0] * 30 + [None] * 40 + [5.0] * 30
        chart.show(Plot((Series("a", "one", [float(i) for i in range(100)], ys),), 0.0, 99.0))
        curve = next(r[4:] for r in chart.plain().splitlines()[1:-1] if any("⠀" < c <= "⣿" for c in r))
        middle = curve[len(curve) * 2 // 5 : len(curve) * 3 // 5]
        assert not middle.strip()


async def test_an_empty_chart_says_what_will_appear() -> None:
    chart = Chart("t", empty="a curve appears when requests have ended")
    async with Stage(chart).run_test(size=(60, 8)):
        chart.show(None)
        assert "a curve appears" in chart.plain()


async def test_only_lines_that_differ_are_repainted() -> None:
    panel = TextPanel("t")
    async with Stage(panel).run_test(size=(40, 8)) as pilot:
        panel.show((line("one"), line("two"), line("three")))
        await pilot.pause()
        painted: list[int] = []
        refresh = panel.refresh
        panel.refresh = lambda *regions, **more: painted.extend(r.y for r in regions) or refresh(*regions, **more)  # type: ignore[func-returns-value,method-assign]  # watches what the panel asks for
        panel.show((line("one"), line("2"), line("three")))
        assert painted == [2]
        panel.show((line("one"), line("2"), line("three")))
        assert painted == [2]


def gpu(node: str, index: int, **more: Any) -> dict[str, Any]:
    row = {
        "node": node,
        "gpu": index,
        "util_pct": 97.0,
        "mem_used_bytes": 80 * 2**30,
        "mem_total_bytes": 96 * 2**30,
        "power_w": 400.0,
        "power_limit_w": 600.0,
        "temp_c": 60.0,
        "sm_mhz": 2400.0,
        "throttle": "",
        "stale": False,
        "age_s": 0.4,
        "util_series": [97.0] * 60,
        "peer_util_pct": 97.0,
    }
    return {**row, **more}


@pytest.mark.parametrize(("gpus", "height"), [(8, 3), (8, 8), (8, 13), (8, 40), (32, 3), (32, 26), (32, 60)])
async def test_the_device_grid_uses_the_room_it_gets(gpus: int, height: int) -> None:
    panel = Devices("GPU")
    async with Stage(panel).run_test(size=(100, height)):
        panel.show([gpu(n, i) for n in ("node5", "node7") for i in range(gpus)])
        rows = panel.plain().splitlines()
        assert len(rows) <= height
        assert any(r.startswith("node5") for r in rows)
        assert any(r.startswith("node7") for r in rows)


async def test_the_device_grid_marks_a_throttled_and_a_silent_gpu() -> None:
    panel = Devices("GPU")
    async with Stage(panel).run_test(size=(100, 3)):
        panel.show(
            [gpu("node5", 0), gpu("node5", 1, throttle="hw_thermal_slowdown"), gpu("node7", 0, stale=True, age_s=40)]
        )
        text = panel.plain()
        assert "▲ 1 thermal" in text
        assert "▲ no data for 40 s" in text


def test_a_power_cap_is_how_a_limited_gpu_works() -> None:
    assert throttled({"throttle": "sw_power_cap"}) == ""
    assert throttled({"throttle": "sw_power_cap,hw_thermal_slowdown"}) == "hw_thermal_slowdown"
    assert throttled({"throttle": None}) == ""


def rail(node: str, device: str, door: str, peak: float) -> dict[str, Any]:
    return {"node": node, "device": device, "door": door, "tx_peak_gbs": peak, "rx_peak_gbs": 0.0}


def test_netdevs_are_shown_only_where_they_tell_something() -> None:
    rows = [
        rail("node5", "mlx5_0", "rdma", 0.0),
        rail("node5", "eth0", "netdev", 0.0),
        rail("node5", "eth3", "netdev", 2.0),
        rail("node5", "docker0", "netdev", 3.0),
        rail("plain", "eth0", "netdev", 1.0),
    ]
    shown = [(r["node"], r["device"]) for r in worth_showing(rows, {"node5": {"eth0", "eth3"}})]
    assert shown == [("node5", "mlx5_0"), ("node5", "eth3"), ("plain", "eth0")]


def test_least_important_columns_go_first() -> None:
    columns = [Column(n, w, lambda r: ("", ""), keep=k) for n, w, k in (("a", 10, 9), ("b", 10, 1), ("c", 10, 5))]
    assert [c.label for c, _ in cut(columns, 40)] == ["a", "b", "c"]
    assert [c.label for c, _ in cut(columns, 25)] == ["a", "c"]
    assert [c.label for c, _ in cut(columns, 5)] == ["a"]


async def test_a_table_keeps_its_row_when_rows_come_in_above() -> None:
    table = Table("t", (Column("k", 0, lambda r: (r["k"], "")),), key="k")
    async with Stage(table).run_test(size=(30, 8)) as pilot:
        table.show([{"k": k} for k in "abc"])
        table.focus()
        await pilot.press("down")
        table.show([{"k": k} for k in "zyabc"])
        assert table.row == {"k": "b"}


async def test_the_phase_strip_is_in_proportion_and_counts_what_remains() -> None:
    strip = PhaseStrip()
    async with Stage(strip).run_test(size=(80, 1)):
        strip.show((PhaseBit("launch", 300.0), PhaseBit("ramp", 10.0), PhaseBit("steady", 30.0, left_s=30.0, now=True)))
        text = strip.plain()
        assert text.index("launch 05:00") < text.index("ramp") < text.index("steady 30 s")
        assert 2.5 < text.count("▪") / max(text.split("steady")[0].count("▪"), 1) < 6
        assert abs(text.count("░") - text.split("steady")[1].count("▪")) <= 1


async def test_a_hostile_log_line_reaches_the_terminal_harmless() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(60, 6)):
        text = "\x1b[2J\x07\r\n\u202e[bold]\ud800 漢字 " + "x" * 100_000
        row = {
            "at_ns": 0,
            "node": "node5\x1b",
            "rank": 1,
            "kind": "server",
            "severity": 20,
            "text": text,
            "truncated": False,
        }
        view.show([row])
        strips = [view.render_line(y) for y in range(6)]
        assert all(s.cell_length == 60 for s in strips)
        shown = "".join(s.text for s in strips)
        assert shown.isprintable()
        assert "[bold]" in shown, "markup is text"


def test_lines_compare_by_what_they_show() -> None:
    assert line("a", ("b", "warn")) == Line((("a", ""), ("b", "warn")))
    assert line("a") != line(("a", "warn"))
