"""Expansion of words as Bash does it, as far as it can be known without running anything.

What only a shell on the node can tell (`$(hostname -i)`, `$HOME`, an argument of the script) stays as its source text.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import Final

from runners.importing.shell_words import MAX_NESTING, Part, Token, closing, tokens

_PARAM = re.compile(r"(#|!)?([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)\Z", re.DOTALL)
_OPS: Final = (":-", ":=", ":+", ":?", "##", "%%", "//", "^^", ",,", "-", "=", "+", "?", "#", "%", "/", "^", ",", ":")
_ARITH = re.compile(r"[\d\s+\-*/%()]{1,100}\Z")
_BRACES = re.compile(r"(.*?)\{(-?\d{1,4})\.\.(-?\d{1,4})\}(.*)\Z|(.*?)\{([^{}\s]*,[^{}\s]*)\}(.*)\Z", re.DOTALL)
MAX_FIELDS: Final = 4096
MAX_TEXT: Final = 1_000_000


@dataclass(slots=True)
class Scope:
    """Variables of a script: values as far as they are known; `defined` remembers the command that set a name."""

    values: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)  # associative arrays, keys as written
    exported: dict[str, None] = field(default_factory=dict)
    arguments: list[str] | None = None  # of a function call; None at the top, where they are not known
    used: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)  # names whose value holds text that only a shell can expand

    def copy(self) -> Scope:
        """A subshell's scope: what it sets is not seen outside."""
        return Scope(
            dict(self.values),
            {name: list(items) for name, items in self.arrays.items()},
            {name: dict(items) for name, items in self.maps.items()},
            dict(self.exported),
            self.arguments,
            self.used,
            set(self.unknown),
        )

    def environment(self) -> dict[str, str]:
        """Exported variables that have a value."""
        return {name: self.values[name] for name in self.exported if name in self.values}


@dataclass(slots=True)
class Piece:
    text: str
    quoted: bool
    known: bool = True
    fields: list[str] | None = None  # of "$@" and "${A[@]}": several words
    inner: list[Piece] | None = None  # of an unquoted default: quotes inside it count


class Expander:
    """Expands words in a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.depth = 0

    def words(self, items: list[Token]) -> list[str]:
        """Fields of several words, in order."""
        return [text for item in items for text, _ in self.fields(item)][:MAX_FIELDS]

    def fields(self, token: Token) -> list[tuple[str, bool]]:
        """(text, known) of each field that a word expands to: none, one or several."""
        pieces = [self._piece(part) for part in token.parts]
        if not any(part.quoted for part in token.parts):
            plain = token.plain
            if plain is not None and "{" in plain:
                return [(text, True) for text in braces(plain)]
        return _split(pieces)

    def text(self, token: Token) -> tuple[str, bool]:
        """One word without splitting (assignments, redirections, case words): (text, known)."""
        pieces = [self._piece(part) for part in token.parts]
        joined = "".join(" ".join(piece.fields) if piece.fields is not None else piece.text for piece in pieces)
        return joined[:MAX_TEXT], all(piece.known for piece in pieces)

    def string(self, source: str) -> tuple[str, bool]:
        """Text with quotes and expansions (the default in ${A:-...}), fields joined by blanks."""
        found = [self.text(item) for item in tokens(source) if not item.op or item.op != "\n"]
        joined = " ".join(text for text, _ in found)
        if source[:1].isspace() and joined:
            joined = " " + joined
        return joined, all(known for _, known in found)

    def _operand(self, source: str, quoted: bool) -> Piece:
        """The word behind `:-` and the like; unquoted, its own quotes decide how it splits."""
        pieces: list[Piece] = []
        end = 0
        for item in tokens(source):
            if item.start > end:
                pieces.append(Piece(" ", False))
            end = item.end
            pieces += [self._piece(part) for part in item.parts] if not item.op else [Piece(item.op, False)]
        text = "".join(" ".join(piece.fields) if piece.fields is not None else piece.text for piece in pieces)
        known = all(piece.known for piece in pieces)
        return Piece(text, True, known) if quoted else Piece(text, False, known, inner=_flat(pieces))

    def heredoc(self, body: str) -> str:
        """The body of an unquoted heredoc: variables replaced, quotes kept."""

        def put(match: re.Match[str]) -> str:
            if match[0].startswith("\\"):
                return match[0][1:]
            piece = self._param(match[1] or match[2], True, match[0])
            return piece.text

        return re.sub(r"\\[$`\\]|\$\{([^}]*)\}|\$([A-Za-z_]\w*|\d)", put, body)

    def _piece(self, part: Part) -> Piece:
        if part.kind == "text":
            return Piece(part.text, part.quoted)
        if part.kind == "param":
            if self.depth > MAX_NESTING:
                return Piece(part.raw, part.quoted, False)
            self.depth += 1
            piece = self._param(part.text, part.quoted, part.raw)
            self.depth -= 1
            return piece
        if part.kind == "arith":
            value = self._arithmetic(part.text)
            return Piece(part.raw, part.quoted, False) if value is None else Piece(str(value), part.quoted)
        return self._command(part)

    def _command(self, part: Part) -> Piece:
        """A few commands have an answer without running them; every other one stays as text."""
        words = part.text.split()
        if words[:1] == ["seq"] and all(word.lstrip("-").isdecimal() for word in words[1:]) and 2 <= len(words) <= 4:
            numbers = [int(word) for word in words[1:]]
            first, step, last = (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[-1])
            if len(numbers) == 3:
                step = numbers[1] or 1
            listed = [str(item) for item in range(first, last + (1 if step > 0 else -1), step)][:MAX_FIELDS]
            return Piece("\n".join(listed), part.quoted)
        if words[:1] == ["echo"] and not re.search(r"[|;&<>`]|\$\(|-[neE] ", part.text):
            text, known = self.string(part.text.split(None, 1)[1] if len(words) > 1 else "")
            if known:
                return Piece(text, part.quoted)
        return Piece(part.raw, part.quoted, False)

    def _lookup(self, name: str, index: str | None) -> tuple[str | None, bool, list[str] | None]:
        """(value, known, fields) of a name; value None when it is not set in the script."""
        scope = self.scope
        scope.used.add(name)
        if name.isdecimal() or name in "@*#":
            return self._argument(name)
        if name in scope.maps and index is not None:
            if index in ("@", "*"):
                return " ".join(scope.maps[name].values()), True, list(scope.maps[name].values())
            key, known = self.string(index)
            return scope.maps[name].get(key, "") if known else None, known, None
        if index in ("@", "*"):
            items = scope.arrays.get(name)
            if items is None and name in scope.values:
                items = [scope.values[name]]
            return ("" if items is None else " ".join(items)), True, items if items is not None else []
        if name in scope.arrays:
            items = scope.arrays[name]
            index = self.string(index)[0] if index else None
            at = int(index) if index and index.lstrip("-").isdecimal() else 0
            value = items[at] if -len(items) <= at < len(items) else ""
            return value, True, None
        return scope.values.get(name), name not in scope.unknown, None

    def _argument(self, name: str) -> tuple[str | None, bool, list[str] | None]:
        given = self.scope.arguments
        if given is None:
            return None, False, None
        if name in "@*":
            return " ".join(given), True, list(given)
        if name == "#":
            return str(len(given)), True, None
        at = int(name[:4])
        if at == 0:
            return self.scope.values.get("0"), True, None
        return (given[at - 1] if 1 <= at <= len(given) else None), True, None

    def _param(self, expression: str, quoted: bool, raw: str) -> Piece:
        match = _PARAM.match(expression)
        if match is None:
            return Piece(raw, quoted, False)
        mark, name, index, rest = match[1], match[2], match[3], match[4]
        if name in "?$!-" and not name.isalnum():
            return Piece(raw, quoted, False)
        value, known, items = self._lookup(name, index)
        if mark == "!" and index in ("@", "*") and items is not None:  # the keys of an array
            items = list(self.scope.maps.get(name) or map(str, range(len(items))))
            value = " ".join(items)
        elif mark == "!" and value is not None:
            value, known, items = self._lookup(value, None)
        if mark == "#":
            if items is not None:
                return Piece(str(len(items)), quoted)
            return Piece(raw, quoted, False) if value is None or not known else Piece(str(len(value)), quoted)
        if not rest:
            if value is None:
                unset = self.scope.arguments is not None and name.isdecimal()
                return Piece("", quoted) if unset else Piece(raw, quoted, False)
            spread = items if index == "@" or name == "@" or not quoted else None
            return Piece(value, quoted, known, spread)
        op = next((item for item in _OPS if rest.startswith(item)), "")
        return self._operation(op, rest[len(op) :], name, value, known, items, quoted, raw)

    def _operation(
        self,
        op: str,
        operand: str,
        name: str,
        value: str | None,
        known: bool,
        items: list[str] | None,
        quoted: bool,
        raw: str,
    ) -> Piece:
        empty = value is None or (op.startswith(":") and value == "")
        if op in (":-", "-", ":=", "="):
            if not empty:
                return Piece(value or "", quoted, known, items)
            made = self._operand(operand, quoted)
            if "=" in op and re.fullmatch(r"[A-Za-z_]\w*", name):
                self.scope.values[name] = made.text
            return made
        if op in (":+", "+"):
            return Piece("", quoted) if empty else self._operand(operand, quoted)
        if op in (":?", "?"):
            return Piece(raw, quoted, False) if empty else Piece(value or "", quoted, known)
        if value is None or not known or not op:
            return Piece(raw, quoted, False)
        if op == ":":
            return self._slice(value, operand, quoted, raw)
        pattern, _ = self.string(operand)
        return Piece(_modified(op, value, pattern), quoted)

    def _slice(self, value: str, operand: str, quoted: bool, raw: str) -> Piece:
        begin, _, length = operand.partition(":")
        if not begin.strip().lstrip("-").isdecimal() or (length and not length.strip().lstrip("-").isdecimal()):
            return Piece(raw, quoted, False)
        text = value[int(begin) :]
        return Piece(text[: int(length)] if length else text, quoted)

    def truth(self, expression: str) -> bool | None:
        """The value of `(( a == 1 ))`; None when it cannot be known."""
        match = re.fullmatch(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)", expression, re.DOTALL)
        if match is None:
            value = self._arithmetic(expression)
            return None if value is None else value != 0
        left, right = self._arithmetic(match[1]), self._arithmetic(match[3])
        if left is None or right is None:
            return None
        return {
            "==": left == right, "!=": left != right, "<=": left <= right, ">=": left >= right,
            "<": left < right, ">": left > right,
        }[match[2]]  # fmt: skip

    def _arithmetic(self, expression: str) -> int | None:
        def put(match: re.Match[str]) -> str:
            value, known, _ = self._lookup(match[1], None)
            return value if value is not None and known and value.strip().lstrip("-").isdecimal() else "?"

        text = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", put, expression)
        return arithmetic(text) if _ARITH.match(text) else None


def _modified(op: str, value: str, pattern: str) -> str:
    """`#`, `%`, `/`, `^` and `,` of parameter expansion."""
    if op in ("^^", "^"):
        return value.upper() if op == "^^" else value[:1].upper() + value[1:]
    if op in (",,", ","):
        return value.lower() if op == ",," else value[:1].lower() + value[1:]
    if op in ("//", "/"):
        old, _, new = pattern.partition("/")
        if not old:
            return value
        return value.replace(old, new) if op == "//" else value.replace(old, new, 1)
    cuts = range(len(value) + 1)
    if op in ("#", "##"):
        order = cuts if op == "#" else reversed(cuts)
        at = next((cut for cut in order if fnmatch.fnmatchcase(value[:cut], pattern)), 0)
        return value[at:]
    order = reversed(cuts) if op == "%" else cuts
    at = next((cut for cut in order if fnmatch.fnmatchcase(value[cut:], pattern)), len(value))
    return value[:at]


def arithmetic(text: str) -> int | None:
    """Whole-number value of + - * / % and brackets; None when it is none of these."""
    items = re.findall(r"\d+|[-+*/%()]", text)
    at = 0

    def factor() -> int:
        nonlocal at
        item = items[at]
        at += 1
        if item == "-":
            return -factor()
        if item == "(":
            value = total()
            at += 1
            return value
        return int(item)

    def product() -> int:
        nonlocal at
        value = factor()
        while at < len(items) and items[at] in "*/%":
            op = items[at]
            at += 1
            right = factor()
            value = value * right if op == "*" else value // right if op == "/" else value % right
        return value

    def total() -> int:
        nonlocal at
        value = product()
        while at < len(items) and items[at] in "+-":
            op = items[at]
            at += 1
            right = product()
            value = value + right if op == "+" else value - right
        return value

    try:
        value = total()
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return value if at == len(items) else None


def braces(word: str, depth: int = 0) -> list[str]:
    """`a{0..2}` and `{x,y}`; a word without them is itself."""
    match = _BRACES.match(word)
    if match is None or depth > 4:
        return [word]
    if match[2] is not None:
        first, last = int(match[2]), int(match[3])
        numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
        made = [f"{match[1]}{number}{match[4]}" for number in numbers]
    else:
        made = [f"{match[5]}{item}{match[7]}" for item in match[6].split(",")]
    return [text for item in made for text in braces(item, depth + 1)][:MAX_FIELDS]


def _flat(pieces: list[Piece]) -> list[Piece]:
    return [item for piece in pieces for item in (piece.inner if piece.inner is not None else [piece])]


def _split(pieces: list[Piece]) -> list[tuple[str, bool]]:
    """Word splitting: unquoted known values split at blanks, quoted ones do not, "$@" gives one field an item."""
    fields: list[tuple[str, bool]] = []
    current, known, open_field = "", True, False
    marks = nothing = False  # quotes were seen; "$@" gave no word at all
    for piece in _flat(pieces):
        if piece.fields is not None:
            nothing = nothing or not piece.fields
            items = list(piece.fields) if piece.quoted else [part for item in piece.fields for part in item.split()]
            for at, item in enumerate(items):
                if at:
                    fields.append((current, known))
                    current, known = "", True
                current += item
                open_field = True
        elif piece.quoted:
            current += piece.text
            known = known and piece.known
            marks = True
            open_field = open_field or bool(piece.text)
        else:
            current, known, open_field = _add_unquoted(piece, fields, current, known, open_field)
    if open_field or (marks and not nothing and not fields):
        fields.append((current, known))
    return fields


def _add_unquoted(
    piece: Piece, fields: list[tuple[str, bool]], current: str, known: bool, open_field: bool
) -> tuple[str, bool, bool]:
    known = known and piece.known
    parts = re.split(r"[ \t\n]+", piece.text) if piece.known else _outside_brackets(piece.text)
    for at, part in enumerate(parts):
        if at:
            if open_field:
                fields.append((current, known))
            current, known, open_field = "", piece.known, False
        if part:
            current += part
            open_field = True
    return current, known, open_field


def _outside_brackets(text: str) -> list[str]:
    """Split at blanks, but not inside $(...), ${...} or backticks, whose text only a shell can expand."""
    parts = [""]
    at = 0
    while at < len(text):
        if text.startswith(("$(", "${"), at):
            end = closing(text, at + 2, text[at + 1], ")" if text[at + 1] == "(" else "}")
        elif text[at] == "`":
            found = text.find("`", at + 1)
            end = len(text) if found < 0 else found + 1
        elif text[at].isspace():
            parts.append("")
            at += 1
            continue
        else:
            end = at + 1
        parts[-1] += text[at:end]
        at = end
    return parts
