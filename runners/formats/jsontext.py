"""JSON as tools write it: warnings before it, a bare Infinity or NaN in it, one object a line, or cut short."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import text

MAX_DEPTH: Final = 200


def _nothing(_: str) -> None:
    """NaN and Infinity are no numbers that a report may use: they read as null."""


_DECODER: Final = json.JSONDecoder(parse_constant=_nothing)


def loads(source: str) -> Any:
    """The JSON value of a text; None when it is no JSON (a literal `null` reads the same)."""
    if source.count("[") + source.count("{") > 4 and _too_deep(source):
        return None
    try:
        return _DECODER.decode(source.strip().lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return None


def _too_deep(source: str) -> bool:
    """Nesting that would exhaust the stack of the parser."""
    return any(source.count(opening * MAX_DEPTH) for opening in "[{")


def document(lines: Iterable[str]) -> Any:
    """The JSON document of a text, also when warnings stand before it or it was cut at the end; else None."""
    whole = text.document(lines)
    return None if whole is None else salvage(whole)


def salvage(whole: str) -> Any:
    """`loads`, then without what stands before the first bracket, then cut at the last complete element."""
    value = loads(whole)
    if value is not None:
        return value
    starts = [at for at in (whole.find("{"), whole.find("[")) if at >= 0]
    if not starts:
        return None
    body = whole[min(starts) :]
    value = _prefix(body)
    return value if value is not None else loads(closed(body))


def _prefix(body: str) -> Any:
    if _too_deep(body):
        return None
    try:
        return _DECODER.raw_decode(body)[0]
    except (ValueError, RecursionError):
        return None


_MARK: Final = re.compile(r'["\[\]{}]')
_IN_TEXT: Final = re.compile(r'["\\]')


def closed(body: str) -> str:
    """A JSON text that was cut off, made whole: cut at the last complete element and closed. One pass."""
    stack: list[str] = []
    last, at_last = 0, ""
    at = 0
    while mark := _MARK.search(body, at):
        at = mark.end()
        if mark[0] == '"':
            while (end := _IN_TEXT.search(body, at)) and end[0] == "\\":
                at = end.end() + 1
            if end is None:
                break
            at = end.end()
        elif mark[0] in "[{":
            stack.append("]" if mark[0] == "[" else "}")
        else:
            if not stack or stack[-1] != mark[0]:
                break
            stack.pop()
            last, at_last = at, "".join(reversed(stack))
            if not stack:
                break
    return body[:last] + at_last


def objects(lines: Iterable[str]) -> Iterator[Any]:
    """Values of a JSON Lines text; a bad line gives None (blank lines are passed over)."""
    for line in lines:
        if line.strip():
            yield loads(line) if len(line) <= text.MAX_DOCUMENT else None
