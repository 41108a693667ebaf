"""What `run` is asked: varied cases from words, and three questions for whoever sits at a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from console.verbs.run import RunRequest, asked_once, vary_of
from runners.spec import ConfigError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_assignments_become_what_is_varied() -> None:
    assert vary_of([]) is None
    assert vary_of(["concurrency=8,16", "isl=2048", "slo=none"]) == {
        "concurrency": ["8", "16"],
        "isl": "2048",
        "slo": "none",
    }
    for wrong in ("isl", "seed=1", "=3"):
        with pytest.raises(ConfigError, match="write one of concurrency="):
            vary_of([wrong])


def test_a_terminal_is_asked_three_questions_and_may_skip_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("more slots\n\nmore tokens\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    said = asked_once(RunRequest(["D1"])).params()
    assert (said["changes"], said.get("why"), said["expects"]) == ("more slots", None, "more tokens")


@pytest.mark.parametrize("request_", [RunRequest(["D1"], why="known"), RunRequest(["D1"], changes="x")])
def test_who_has_answered_with_a_flag_is_not_asked(monkeypatch: pytest.MonkeyPatch, request_: RunRequest) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("more slots\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert asked_once(request_) == request_


def test_a_script_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("not an answer\n"))
    assert asked_once(RunRequest(["D1"])) == RunRequest(["D1"])
