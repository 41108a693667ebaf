"""The profile screen over real captures: its figures are the report's, and every one leads to its events."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import Input

from console.profile_app import ProfileApp, show_profile
from runners.profiles import ProfileError, open_profile, paths_of
from screens.dialogs import Ask, Reader
from screens.profile import ProfileScreen
from screens.profile_events import EventsScreen
from screens.profile_rows import LETTERS
from screens.widgets.bars import Bar, TextPanel
from screens.widgets.stackbar import StackBars, cells
from screens.widgets.table import Table
from screens.widgets.timeline_lanes import Timeline
from store.analysis.compare import diff
from store.analysis.families import FAMILIES
from store.analysis.report import analyze
from tests.screens.conftest import OpenApp, goto

TRACES = Path(__file__).parents[1] / "data" / "traces"
RANKS = (TRACES / "a100-rank-0.json.gz", TRACES / "a100-rank-1.json.gz")
PREFILL = TRACES / "vllm-b200-tp8-rank0.json.gz"
SMALL, MIDDLE, LARGE = (80, 24), (120, 36), (200, 60)


async def until(pilot: Pilot[int], true: Callable[[], Any]) -> None:
    for _ in range(1200):
        if true():
            await pilot.pause()
            return
        await pilot.pause(0.02)
    raise AssertionError("it did not come to that in 24 s")


async def drawn(pilot: Pilot[int]) -> ProfileScreen:
    """Wait until the bars and the window asked for are on screen."""
    screen = next(s for s in pilot.app.screen_stack if isinstance(s, ProfileScreen))
    timeline = screen.query_one(Timeline)
    await until(pilot, lambda: timeline.data is not None and timeline.data.window == timeline._asked)
    return screen


def plain(screen: ProfileScreen, ident: str) -> list[str]:
    panel = screen.query_one(ident)
    assert isinstance(panel, (Table, TextPanel, Bar, Timeline))
    return panel.plain().splitlines()


def percents(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"\d+\.\d+", text)]


# --- pictures


@pytest.mark.parametrize(
    ("page", "size"),
    [*((page, size) for page in "fnci" for size in (SMALL, MIDDLE)), ("i", LARGE)],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}x{value[1]}",
)
def test_picture(snap_compare: Any, page: str, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await drawn(pilot)
        await pilot.press(page)
        await drawn(pilot)

    assert snap_compare(ProfileApp(RANKS), terminal_size=size, run_before=show)


def test_picture_of_one_rank_with_the_timeline_maximised(snap_compare: Any) -> None:
    async def show(pilot: Pilot[int]) -> None:
        screen = await drawn(pilot)
        screen.query_one(Timeline).focus()
        await pilot.press("z")
        await drawn(pilot)

    assert snap_compare(ProfileApp([PREFILL]), terminal_size=SMALL, run_before=show)


# --- figures


async def test_bars_hold_the_parts_of_the_report_and_add_up() -> None:
    report = analyze(RANKS)
    app = ProfileApp(RANKS)
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        rows = screen.query_one(StackBars).data
        assert rows is not None
        ranks = [report["ranks"][row["at"]] for row in rows]
        assert [r["wall_ns"] for r in ranks] == sorted((r["wall_ns"] for r in report["ranks"]), reverse=True)
        texts = plain(screen, "#bars")[2:4]
        for row, rank, text in zip(rows, ranks, texts, strict=True):
            assert sum(ns for *_, ns in row["parts"]) == rank["wall_ns"]
            named = {name: ns for _, _, name, ns in row["parts"]}
            assert named["idle"] == rank["idle_ns"]
            assert named["waiting for later ranks"] == rank["communication_wait_ns"] > 0
            exposed = named["communication exposed, moving"] + named["waiting for later ranks"]
            assert exposed == rank["communication_exposed_ns"]
            wall = rank["wall_ns"]
            computing = sum(rank["compute_ns"].values())
            of_it = (exposed, rank["communication_wait_ns"])
            figures = (computing, rank["overlap_ns"], *of_it, rank["copy_exposed_ns"], rank["idle_ns"])
            assert percents(text)[1:] == [round(100 * ns / wall, 1) for ns in figures]


async def test_families_and_kernels_are_the_reports() -> None:
    report = analyze([PREFILL])
    rank = report["ranks"][0]
    app = ProfileApp([PREFILL])
    async with app.run_test(size=(120, 50)) as pilot:
        screen = await drawn(pilot)
        await pilot.press("v", "v")  # kinds -> steps -> files
        shown = {re.split(r"\s{2,}", t.strip())[0][2:]: percents(t)[-1] for t in plain(screen, "#families")[2:] if t}
        wall = rank["wall_ns"]
        assert shown["MoE"] == round(100 * rank["compute_ns"]["MoE"] / wall, 2)
        assert shown["Communication alone"] == round(100 * rank["communication_exposed_ns"] / wall, 2)
        assert shown["copies alone"] == round(100 * rank["copy_exposed_ns"] / wall, 2)
        assert sum(shown.values()) == pytest.approx(100, abs=0.1)
        await pilot.press("n")
        kernels = screen.query_one("#kernels", Table)
        for key in ("total_ns", "count", "mean_ns"):
            wanted = sorted((row[key] for row in (*report["kernels"], *report["copies"])), reverse=True)
            assert [row[key] for row in kernels.data or ()] == wanted
            await pilot.press("s")


async def test_two_files_show_what_changed() -> None:
    wanted = diff(analyze(RANKS[:1]), analyze(RANKS[1:]))
    app = ProfileApp(RANKS)
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        await pilot.press("x")
        rows = screen.query_one("#diff", Table).data or []
        kernels = [row for row in rows if row["kind"] == "kernel"]
        assert [row["change"] for row in kernels] == [row["total_ns"]["change"] for row in wanted["kernels"]]
        assert {row["name"]: row["b"] for row in rows if row["kind"] == "family"} == {
            name: cell["b"] for name, cell in wanted["families"].items()
        }
        wall = analyze(RANKS)["ranks"][1]["wall_ns"] - analyze(RANKS)["ranks"][0]["wall_ns"]
        assert rows[0]["name"] == "wall clock"
        assert rows[0]["change"] == wall
        assert f"+{wall / 1e6:.2f} ms" in plain(screen, "#diff")[2]
        bars = screen.query_one(StackBars).data or []
        assert all(row["shares"][3] for row in bars), "the waiting between the files is still there"


async def test_problems_and_unmatched_time_stay_on_screen() -> None:
    bad = TRACES / "nsys-2022-t4.sqlite.gz"  # packed sqlite is not read
    app = ProfileApp([*RANKS, bad])
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        for keys in ("f", "n", "c", "a", "d", "z"):
            await pilot.press(keys)
            bar = screen.query_one("#state", Bar)
            text = bar.plain()
            assert "2 problems" in text
            assert "no torch trace" in text
            assert "unmatched 0.60 %" in text
            assert bar.region.height == 1
            assert screen.region.contains_region(bar.region)
        await pilot.press("p")
        await pilot.pause()
        assert isinstance(app.screen, Reader)
        text = "\n".join(entry.text for entry in app.screen._texts)
        report = analyze([*RANKS, bad])
        assert all(problem in text for problem in report["problems"])
        assert "bounds_check_indices_kernel" in text


async def test_ten_questions_are_answered_or_said_to_be_out_of_reach() -> None:
    app = ProfileApp([PREFILL])
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        await pilot.press("a", "z")
        text = "\n".join(plain(screen, "#questions"))
        for number in range(1, 11):
            assert f"{number:>2}. " in text
        assert "this capture cannot tell, because" in text


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=16), st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_a_bar_fills_its_width_and_no_part_is_off_by_a_cell(lengths: list[int], width: int) -> None:
    parts = [(chr(65 + i), "", "", ns) for i, ns in enumerate(lengths)]
    total = sum(lengths)
    text = "".join(t for t, _ in cells(parts, width))
    assert len(text) == (width if total else 0)
    for letter, _, _, ns in parts:
        assert abs(text.count(letter) - (ns * width / total if total else 0)) <= 1


# --- down to the events


async def test_a_kernel_leads_to_its_events_and_an_event_to_its_place() -> None:
    report = analyze(RANKS)
    app = ProfileApp(RANKS)
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        await pilot.press("n", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, EventsScreen))
        events = app.screen.query_one(Table)
        assert events.data is not None
        assert len(events.data) == report["kernels"][1]["count"]
        assert sum(row["length_ns"] for row in events.data) == report["kernels"][1]["total_ns"]
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.screen is screen)
        chosen = events.row
        assert chosen is not None
        await drawn(pilot)
        timeline = screen.query_one(Timeline)
        assert timeline.data is not None
        row = timeline.data.rows[timeline.row_at]
        assert (row["rank"], row["name"]) == (chosen["rank"], f"stream {chosen['stream']}")
        assert FAMILIES[row["family"][timeline.cell]] == chosen["family"]
        begin = timeline.data.window.edge(timeline.cell)
        assert chosen["at_ns"] <= begin <= chosen["at_ns"] + chosen["length_ns"]


async def test_gaps_chains_and_every_class_of_lengths_lead_to_their_events() -> None:
    rank = analyze([PREFILL])["ranks"][0]
    lengths = [row for row in rank["chains"]["kernel_lengths"] if row["count"]]
    gaps = [row for row in rank["chains"]["device_gaps"] if row["count"]]
    app = ProfileApp([PREFILL])
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        await pilot.press("i")

        async def events_behind(table: Table, key: object) -> EventsScreen:
            table.select(key)
            table.focus()
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, EventsScreen))
            assert isinstance(app.screen, EventsScreen)
            return app.screen

        chains, small = screen.query_one("#chains", Table), screen.query_one("#small", Table)
        wide = max(rank["host"]["largest_gaps"], key=lambda gap: gap["length_ns"])
        assert chains.data is not None
        assert small.data is not None
        first = chains.data[0]
        assert (first["kind"], first["wall_ns"]) == ("gap", wide["length_ns"])
        edges = (await events_behind(chains, first["id"]))._found.rows
        assert edges[-1]["name"] == wide["next"], "what ends the gap"
        assert edges[-1]["start_ns"] == wide["start_ns"] + wide["length_ns"]
        await pilot.press("escape")
        shown = {row["id"]: row for row in small.data}
        assert shown["prefill: kernels a step"]["value"] == "768"
        assert shown["kernels under 10 us"]["value"] == str(rank["chains"]["under_10us"])
        for title, rows in (("kernels", lengths), ("gaps", gaps)):
            ids = [key for key in shown if key.startswith(title) and shown[key]["share"] is not None][-len(rows) :]
            for key, row in ((ids[0], rows[0]), (ids[-1], rows[-1])):
                assert (await events_behind(small, key))._found.found == row["count"], key
                await pilot.press("escape")


async def test_parts_gaps_and_stragglers_lead_to_their_events_too() -> None:
    report = analyze(RANKS)
    app = ProfileApp(RANKS)
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)

        async def found(table: str, key: object) -> int:
            screen.query_one(table, Table).select(key)
            screen.query_one(table, Table).focus()
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, EventsScreen))
            assert isinstance(app.screen, EventsScreen)
            count = app.screen._found.found
            await pilot.press("escape")
            return count

        gaps = sum(row["count"] for rank in report["ranks"] for row in rank["chains"]["device_gaps"])
        events = sum(rank["kernels"] + rank["copies"] for rank in report["ranks"])
        talking = [sum(row["count"] for row in rank["collectives"]) for rank in report["ranks"]]
        assert await found("#families", "idle") == gaps
        assert await found("#families", "compute and communication") == sum(talking)
        await pilot.press("x")
        rows = {(row["kind"], row["name"]): row["id"] for row in screen.query_one("#diff", Table).data or ()}
        assert await found("#diff", rows["part", "wall clock"]) == events
        assert await found("#diff", rows["gap", "launched, not begun"]) == gaps
        await pilot.press("c")
        last = report["stragglers"][0]
        assert await found("#stragglers", 0) == talking[[r["rank"] for r in report["ranks"]].index(last["rank"])]


async def test_a_family_and_a_cell_lead_to_their_events() -> None:
    app = ProfileApp([PREFILL])
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        await pilot.press("f", "enter")
        await until(pilot, lambda: isinstance(app.screen, EventsScreen))
        rows = app.screen.query_one(Table).data or []
        assert {row["family"] for row in rows} == {"Communication"}
        assert len(rows) == 74
        await pilot.press("escape")
        timeline = screen.query_one(Timeline)
        timeline.focus()
        await pilot.press("right", "right", "right", "enter")
        await until(pilot, lambda: isinstance(app.screen, EventsScreen))
        rows = app.screen.query_one(Table).data or []
        assert timeline.data is not None
        start, end = timeline.data.window.edge(3), timeline.data.window.edge(4)
        assert rows
        assert all(row["at_ns"] < end and row["at_ns"] + row["length_ns"] > start for row in rows)


async def test_zoom_holds_the_instant_under_the_cursor_and_pan_stays_inside() -> None:
    app = ProfileApp(RANKS)
    async with app.run_test(size=MIDDLE) as pilot:
        screen = await drawn(pilot)
        timeline = screen.query_one(Timeline)
        timeline.focus()
        await pilot.press(*["right"] * 30)
        assert timeline.data is not None
        held, cell = timeline.data.window.edge(30), timeline.span_ns / timeline.data.window.width
        await pilot.press(*["plus"] * 4)
        await drawn(pilot)
        window = timeline.data.window
        assert window.end_ns - window.start_ns == pytest.approx(timeline.span_ns / 16, rel=0.01)
        assert abs(window.edge(timeline.cell) - held) <= cell
        await pilot.press(*["h"] * 40)
        assert timeline.start_ns == 0
        await pilot.press(*["l"] * 80)
        assert timeline.end_ns == timeline.span_ns
        await pilot.press("w")
        assert (timeline.start_ns, timeline.end_ns) == (0, timeline.span_ns)
        await pilot.press(*["plus"] * 40)
        await drawn(pilot)
        assert timeline.end_ns - timeline.start_ns >= timeline.data.window.width


async def test_the_device_row_holds_all_busy_time() -> None:
    profile = await open_profile(RANKS)
    try:
        width = 500
        rows = await profile.lanes(0, profile.span_ns, width)
        for at, rank in enumerate(profile.report["ranks"]):
            row = next(row for row in rows if row["rank"] == at and row["name"] == "device")
            busy = sum(row["share"]) * profile.span_ns / width
            assert busy == pytest.approx(rank["wall_ns"] - rank["idle_ns"], rel=0.001)
    finally:
        await profile.close()


def test_every_family_has_its_own_letter() -> None:
    assert set(LETTERS) == set(FAMILIES)
    assert len({text for text, _ in LETTERS.values()}) == len(FAMILIES)


# --- opening, giving up, and what cannot be opened


async def test_a_trace_is_opened_from_home_by_its_path(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=MIDDLE) as pilot:
        await goto(pilot, "1")
        assert "open a trace" in {c.title for c in app.commands()}
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one(Input).value = f"{TRACES}/a100-rank-*.json.gz"
        await pilot.press("enter")
        screen = await drawn(pilot)
        assert screen.files == RANKS
        assert len(screen.query_one(StackBars).data or ()) == 2
        await goto(pilot, "1")
        assert app.screen is not screen


async def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    bad, empty = tmp_path / "bad.json", tmp_path / "empty.json"
    bad.write_bytes(b"\x1b[31mnot a trace\x00\xff")
    empty.write_bytes(b"")
    app = ProfileApp([bad, empty])
    async with app.run_test(size=SMALL) as pilot:
        work = app.profile.query_one("#work", TextPanel)
        await until(pilot, lambda: "nothing could be analysed" in work.plain())
        text = work.plain()
        assert "empty.json: the file is empty" in text
        assert "bad.json: " in text
        assert "Traceback" not in text
        assert "\x1b" not in text
        app.profile.read([tmp_path / "gone.json"])
        await until(pilot, lambda: "no such file" in work.plain())


async def test_giving_up_ends_the_process(tmp_path: Path) -> None:
    long = tmp_path / "long.json"
    event = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"stream":7}},'
    with long.open("wb") as f:  # seconds of reading
        f.write(b'{"traceEvents":[')
        for _ in range(200):
            f.write(event * 10_000)
    app = ProfileApp([long])
    async with app.run_test(size=SMALL) as pilot:
        work = app.profile.query_one("#work", TextPanel)
        seen: set[int] = set()

        def begun() -> bool:
            seen.update(_children())
            return bool(seen)

        await until(pilot, begun)
        await pilot.press("escape")
        await until(pilot, lambda: "given up" in work.plain())
        await until(pilot, lambda: not seen & set(_children()))


def _children() -> list[int]:
    """Living analysis processes of this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(state[1]) == os.getpid() and state[0] != "Z" and b"profiles_process" in command:
                found.append(int(entry.name))
    return found


async def test_a_process_that_dies_costs_a_sentence() -> None:
    profile = await open_profile([PREFILL])
    await profile.close()
    with pytest.raises(ProfileError, match="ended early"):
        await profile.lanes(0, 1000, 10)


def test_paths_are_read_as_an_operator_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a b.json").touch()
    (tmp_path / "c.json").touch()
    assert paths_of(f"'{tmp_path}/a b.json' {tmp_path}/c*") == [tmp_path / "a b.json", tmp_path / "c.json"]
    assert paths_of("~/no-such-trace.json") == [Path.home() / "no-such-trace.json"]
    with pytest.raises(ProfileError):
        paths_of("'open")


def test_without_a_file_or_a_terminal_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_profile([tmp_path / "gone.json"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert show_profile([PREFILL]) == 2
    assert "leave --tui out" in capsys.readouterr().err
