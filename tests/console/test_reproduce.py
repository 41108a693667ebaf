"""What a run leaves to repeat it is a command line that this very program takes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import typer

from console.cli import app
from runners import orders
from store.export.reproduce import same_order


def ordered(**asked: Any) -> dict[str, Any]:
    """The row of a run that this order began."""
    order = orders.parse_order(orjson.dumps(asked).decode(), "order")
    kept = order.model_dump(mode="json", exclude={"who", "why"}, exclude_none=True)
    return {"spec": orjson.dumps({"asked": kept, "repeats": 2}).decode(), "deployment": "d", "plan": "x"}


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (
            {"kind": "start_run", "what": ["D1", "D2"], "vary": {"concurrency": [8, 16]}, "scale": 0.5, "keep": True},
            "run D1 D2 --repeats 2 --deployment d --scale 0.5 --keep --vary concurrency=8,16",
        ),
        (
            {"kind": "start_search", "what": "D2", "max_rate": 8, "stop_at_slo": False, "deployment": "e"},
            "search D2 --deployment e --climb-on --max-rate 8.0",
        ),
        (
            {"kind": "start_ab", "what": ["D2"], "a": "1", "b": "2", "vary_one": "flags.--x", "deployment": "d",
             "margin": 0.05, "declared": ["flags.--x"]},
            "ab --run 1 2 --case D2 --vary flags.--x --deployment d --blocks 6 --margin 5 --change flags.--x",
        ),
        ({"kind": "start_watch", "deployment": "d", "seconds": 600}, "watch d --for 600s"),
    ],
)  # fmt: skip
def test_the_order_of_a_run_comes_back_as_a_command_line(order: dict[str, Any], words: str) -> None:
    line = same_order(ordered(**order))
    assert line == ["twinrail", *words.split()]
    verb = typer.main.get_command(app).commands[line[1]]  # type: ignore[attr-defined]  # a group: it has verbs
    assert verb.make_context(line[1], line[2:]).params  # it parses: every option is one of this program


def test_a_run_whose_order_was_not_kept_is_repeated_by_its_plan() -> None:
    line = same_order({"spec": None, "deployment": "d", "plan": "D1 D2"})
    assert line == ["twinrail", "run", "D1", "D2", "--repeats", "1", "--deployment", "d"]
