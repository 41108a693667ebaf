"""The part of YAML that compose files are written in: maps, lists, scalars, block texts, flow lists, anchors, merges.

Every scalar stays text (compose wants text: `8`, `true` and `16g` alike); an empty value and `null` are None.
https://yaml.org/spec/1.2.2/ - directives, tags, complex keys and multi-documents are not read.
"""

from __future__ import annotations

import re
from typing import Any, Final

_KEY = re.compile(
    r"""((?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#'"\[\]{},&*!|>%@`-][^#]*?|-[^\s#][^#]*?|<<))\s*:(?=\s|$)"""
)
_ANCHOR = re.compile(r"&([\w-]+)\s*")
_BLOCK = re.compile(r"([|>])([+-]?)(\d?)([+-]?)\s*(?:#.*)?\Z")
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", "r": "\r", "0": "\0", " ": " "}
MAX_DEPTH: Final = 60
MAX_FLOW: Final = 20_000  # characters of a flow collection that runs over several lines


class Map(dict[str, Any]):
    """A mapping that remembers the line of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class YamlError(ValueError):
    """Text that this reader does not understand; the message names the line."""


class _Reader:
    def __init__(self, source: str) -> None:
        self.lines = source.replace("\t", "    ").splitlines()
        self.at = 0
        self.anchors: dict[str, Any] = {}

    def next(self) -> tuple[int, str] | None:
        """(indent, text without comment) of the next line with content."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            bare = line.strip()
            if bare and not bare.startswith("#") and bare not in ("---", "...") and not bare.startswith("%"):
                return len(line) - len(line.lstrip()), _uncommented(bare)
            self.at += 1
        return None

    def value(self, indent: int, depth: int) -> Any:
        """The node whose lines are indented by at least `indent`."""
        found = self.next()
        if found is None or found[0] < indent:
            return None
        if depth > MAX_DEPTH:
            raise YamlError(f"line {self.at + 1}: nested too deep")
        level, text = found
        if text == "-" or text.startswith("- "):
            return self.sequence(level, depth)
        if _KEY.match(text):
            return self.mapping(level, depth)
        self.at += 1
        return self.scalar(text, level, depth, indent)

    def mapping(self, level: int, depth: int) -> Map:
        made = Map()
        while (found := self.next()) is not None and found[0] == level:
            match = _KEY.match(found[1])
            if match is None:
                raise YamlError(f"line {self.at + 1}: not a key")
            key = _plain(match[1].strip()) or ""
            line = self.at + 1
            rest = found[1][match.end() :].strip()
            self.at += 1
            value = self.entry(rest, level, depth)
            if key == "<<":
                for base in value if isinstance(value, list) else [value]:
                    for name, item in base.items() if isinstance(base, dict) else ():
                        made.setdefault(name, item)
                        made.lines.setdefault(name, line)
                continue
            made[key] = value
            made.lines[key] = line
        if found is not None and found[0] > level:
            raise YamlError(f"line {self.at + 1}: unexpected indent")
        return made

    def sequence(self, level: int, depth: int) -> list[Any]:
        made: list[Any] = []
        while (found := self.next()) is not None and found[0] == level and (found[1] == "-" or found[1][:2] == "- "):
            rest = found[1][1:].strip()
            if rest and (_KEY.match(rest) or rest.startswith("- ")) and rest[0] not in "\"'[{|>&*":
                inner = level + len(found[1]) - len(found[1][1:].lstrip())
                self.lines[self.at] = " " * inner + rest
                made.append(self.value(inner, depth + 1))
                continue
            self.at += 1
            made.append(self.entry(rest, level, depth))
        return made

    def entry(self, rest: str, level: int, depth: int) -> Any:
        """What stands behind `key:` or `-`, on the line or below it."""
        anchor = _ANCHOR.match(rest)
        if anchor:
            rest = rest[anchor.end() :]
        if rest.startswith("*"):
            return self.anchors.get(rest[1:].strip())
        if rest:
            value = self.scalar(rest, level, depth, level + 1)
        else:
            following = self.next()
            deeper = following is not None and (
                following[0] > level or (following[0] == level and following[1].startswith("-"))
            )
            value = self.value(following[0], depth + 1) if deeper and following is not None else None
        if anchor:
            self.anchors[anchor[1]] = value
        return value

    def scalar(self, text: str, level: int, depth: int, indent: int) -> Any:
        block = _BLOCK.match(text)
        if block:
            return self.block(block[1], block[2] or block[4], level)
        if text[0] in "[{":
            line = self.at
            while not _balanced(text) and self.at < len(self.lines):
                if len(text) > MAX_FLOW:
                    raise YamlError(f"line {self.at + 1}: a flow collection without an end")
                text += " " + _uncommented(self.lines[self.at].strip())
                self.at += 1
            return _lined(_flow(text), line)
        if text[0] in "\"'":
            while not _closed(text) and self.at < len(self.lines):
                text += " " + self.lines[self.at].strip()
                self.at += 1
            return _plain(text)
        while (found := self.next()) is not None and found[0] >= indent and found[0] > level:
            text += " " + found[1]
            self.at += 1
        return _plain(text)

    def block(self, style: str, chomp: str, level: int) -> str:
        """`|` keeps line ends, `>` folds them; `-` drops the last one."""
        taken: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip()) <= level:
                break
            taken.append(line)
            self.at += 1
        while taken and not taken[-1].strip():
            taken.pop()
        inner = min((len(line) - len(line.lstrip()) for line in taken if line.strip()), default=0)
        lines = [line[inner:] for line in taken]
        if style == "|":
            text = "\n".join(lines)
        else:
            text = ""
            for at, line in enumerate(lines):
                more = line.startswith(" ") or (at > 0 and lines[at - 1].startswith(" "))
                joiner = "" if not at else "\n" if not line.strip() or more or not lines[at - 1].strip() else " "
                text += joiner + line
        return text + ("" if chomp == "-" else "\n")


def _uncommented(text: str) -> str:
    """The text without a trailing comment; `#` inside quotes or a word is none."""
    quote = ""
    for at, char in enumerate(text):
        if quote:
            if char == quote and not (quote == '"' and text[at - 1] == "\\"):
                quote = ""
        elif char in "\"'" and (at == 0 or text[at - 1] in " [{,:-"):
            quote = char
        elif char == "#" and at and text[at - 1] == " ":
            return text[:at].rstrip()
    return text


def _closed(text: str) -> bool:
    quote = text[0]
    at = 1
    while at < len(text):
        if quote == '"' and text[at] == "\\":
            at += 2
            continue
        if text[at] == quote:
            if quote == "'" and text[at + 1 : at + 2] == "'":
                at += 2
                continue
            return True
        at += 1
    return False


def _plain(text: str) -> str | None:
    text = text.strip()
    if text[:1] == '"' and _closed(text):
        body = text[1 : text.rfind('"')]
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), body)
    if text[:1] == "'" and _closed(text):
        return text[1 : text.rfind("'")].replace("''", "'")
    return None if text in ("", "~", "null", "Null", "NULL") else text


def _balanced(text: str) -> bool:
    depth, quote = 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "[{") - (char in "]}")
    return depth <= 0


def _flow(text: str) -> Any:
    """A flow list or map."""
    at = 0

    def blank() -> bool:
        """Pass over blanks and commas; is anything left?"""
        nonlocal at
        while at < len(text) and text[at] in " ,":
            at += 1
        return at < len(text)

    def item(depth: int) -> Any:
        nonlocal at
        blank()
        if depth > MAX_DEPTH:
            raise YamlError("flow collections are nested too deep")
        if at >= len(text):
            return None
        if text[at] == "[":
            at += 1
            listed: list[Any] = []
            while blank() and text[at] != "]":
                listed.append(item(depth + 1))
            at += 1
            return listed
        if text[at] == "{":
            at += 1
            mapped = Map()
            while blank() and text[at] != "}":
                key = item(depth + 1)
                while at < len(text) and text[at] in " :":
                    at += 1
                mapped[str(key)] = item(depth + 1) if at < len(text) and text[at] not in ",}" else None
            at += 1
            return mapped
        start = at
        if text[at] in "\"'":
            quote = text[at]
            at += 1
            while at < len(text) and text[at] != quote:
                at += 2 if text[at] == "\\" and quote == '"' else 1
            at += 1
            return _plain(text[start:at])
        while at < len(text) and text[at] not in ",]}":
            if text[at] == ":" and text[at + 1 : at + 2] in (" ", ""):
                break
            at += 1
        if at == start:
            at += 1
        return _plain(text[start:at])

    return item(0)


def _lined(value: Any, line: int) -> Any:
    """A flow collection whose keys all stand on one line."""
    for item in value.values() if isinstance(value, Map) else value if isinstance(value, list) else ():
        _lined(item, line)
    if isinstance(value, Map):
        value.lines = dict.fromkeys(value, line)
    return value


def load(source: str) -> Any:
    """The first document of a text. Raises YamlError."""
    reader = _Reader(source)
    value = reader.value(0, 0)
    if reader.next() is not None:
        raise YamlError(f"line {reader.at + 1}: not understood")
    return value
