"""The checklist of formats, variants and traps: each block of tests/data/facts pins one sentence about a tool.

A block: `== the sentence`, expectations, `--`, the sample. Expectations, one a line:

    rows = 2                    kind, rows, skipped, events (names), gate (verdict without a topology), reason (stop)
    r0/power_w = 627.4          row 0; e0/... an event, i0/... an incident; `/` goes down, values are JSON or `absent`
    r0/flags~ = peak            one element starts so; with a `!` before it: none does
    as = "vllm_log"             the kind is told, not guessed

In samples \\e, \\r, \\t and \\uFEFF stand for what would not survive an editor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats import incidents, kinds, text
from runners.formats.base import Kind, Parsed, collect
from runners.gates.rdma import judge
from tests.runners.formats.samples import expected
from tests.runners.formats.samples import text as capture

FACTS: Final = Path(__file__).parents[2] / "data" / "facts"
MARKS: Final = {"\\e": "\x1b", "\\r": "\r", "\\t": "\t", "\\uFEFF": "\ufeff"}
ABSENT: Final = object()


class Trap(NamedTuple):
    """One block."""

    sentence: str
    expectations: list[tuple[str, str]]
    sample: str

    @property
    def kind(self) -> Kind:
        told = dict(self.expectations).get("as")
        found = kinds.BY_NAME[json.loads(told)] if told else kinds.guess(self.sample[:65536])
        assert found is not None, "no kind"
        return found


def traps() -> Iterator[Trap]:
    for path in sorted(FACTS.glob("*.txt")):
        for block in ("\n" + path.read_text(encoding="utf-8")).split("\n== ")[1:]:
            head, _, sample = block.partition("\n--\n")
            sentence, *lines = head.split("\n")
            for mark, sign in MARKS.items():
                sample = sample.replace(mark, sign)
            pairs = [(key, value) for key, _, value in (line.partition(" = ") for line in lines)]
            yield Trap(f"{path.stem}: {sentence}", pairs, sample)


def summary(parsed: Parsed, kind: Kind, name: str) -> Any:
    match name:
        case "kind":
            return kind.name
        case "rows":
            return len(parsed.rows)
        case "skipped":
            return parsed.skipped
        case "events":
            return [event.name for event in parsed.events]
        case "gate":
            return judge(parsed.rows, parsed.events, None).gate
        case "reason":
            return (incidents.stop_reason(parsed.events) or {}).get("reason")
    raise AssertionError(f"no such expectation: {name}")


def found_at(parsed: Parsed, kind: Kind, path: str) -> Any:
    """The value at a path; ABSENT where a key is not there."""
    first, _, rest = path.partition("/")
    if not rest:
        return summary(parsed, kind, first)
    at = int(first[1:])
    events = incidents.fold(parsed.events) if first[0] == "i" else parsed.events
    value: Any = parsed.rows[at] if first[0] == "r" else events[at].as_dict()
    while rest:
        if isinstance(value, dict) and rest in value:  # a key may hold the slash itself
            return value[rest]
        key, _, rest = rest.partition("/")
        value = value[int(key)] if isinstance(value, list) else value.get(key, ABSENT)
        if value is ABSENT:
            break
    return value


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, int | float):
        return bool(found == pytest.approx(wanted))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


@pytest.mark.parametrize("trap", list(traps()), ids=lambda trap: trap.sentence)
def test_what_the_facts_say(trap: Trap) -> None:
    kind = trap.kind
    parsed = collect(kind.parse(trap.sample.splitlines()))
    assert trap.expectations
    for key, value in trap.expectations:
        if key == "as":
            continue
        path = key.strip("!~")
        found = found_at(parsed, kind, path)
        if key.endswith("~"):
            assert any(item.startswith(value) for item in found) != key.startswith("!"), (key, value, found)
        elif value == "absent":
            assert found is ABSENT, (key, found)
        else:
            assert same(found, json.loads(value)), (key, value, found)


def samples() -> dict[str, list[list[str]]]:
    """Small samples of every kind: real captures and the checklist's own."""
    held: dict[str, list[list[str]]] = {kind.name: [] for kind in kinds.KINDS}
    for item in expected():
        lines = capture(item.file).splitlines()
        if len(lines) <= 80 and sum(map(len, lines)) < 20_000:
            held[item.kind].append(lines)
    for trap in traps():
        held[trap.kind.name].append(trap.sample.splitlines() or [""])
    return held


SAMPLES: Final = samples()
JUNK: Final = st.text(
    alphabet=st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1, max_size=12
)


DOCUMENTS: Final = {"rocm_smi", "amd_smi", "nccl_tests_json"}  # a damaged line may cost the document


def damaged(line: str, data: st.DataObject) -> str:
    """The line cut, with a piece replaced, or garbage in its place."""
    at = data.draw(st.integers(1, max(len(line) - 1, 1)))
    match data.draw(st.sampled_from(("cut", "piece", "garbage"))):
        case "cut":
            made = line[:at]
        case "piece":
            made = line[:at] + data.draw(JUNK) + line[at + data.draw(st.integers(0, 30)) :]
        case _:
            made = data.draw(JUNK)
    return made if text.clean(made) else "?"  # a blank line may end a table


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_damaged_line_costs_at_most_that_line(kind: Kind, data: st.DataObject) -> None:
    lines = SAMPLES[kind.name][data.draw(st.integers(0, len(SAMPLES[kind.name]) - 1))]
    at = data.draw(st.integers(0, len(lines) - 1))
    without = [*lines[:at], *lines[at + 1 :]]
    found = collect(kind.parse([*lines[:at], damaged(lines[at], data), *lines[at + 1 :]])).rows
    if kind.name in DOCUMENTS or lines[0].startswith("["):
        return
    whole, rest = (collect(kind.parse(part)).rows for part in (lines, without))
    cut = next((i for i, row in enumerate(rest) if whole[i : i + 1] != [row]), len(rest))
    if len(whole) != len(rest) + 1 or whole[:cut] + whole[cut + 1 :] != rest:
        return  # the line is no row of its own: a header, a part of a document
    assert len(found) - len(rest) in (0, 1)
    cut = next((i for i, row in enumerate(rest) if found[i] != row), len(rest))
    assert found[:cut] + found[cut + len(found) - len(rest) :] == rest
