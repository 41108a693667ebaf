"""Bash source to tokens, without running anything: words with their quoting, operators, heredocs, places in the text.

Follows the grammar of the Bash manual (shell operation, quoting, expansions) for what launch scripts use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OPERATORS: Final = (
    "&>>", "<<<", "<<-", ";;&", "&&", "||", ";;", ";&", "|&", "&>", ">>", "<<", ">&", "<&", "<>", ">|",
    "|", "&", ";", "(", ")", "<", ">", "\n",
)  # fmt: skip
REDIRECTS: Final = frozenset({"&>>", "&>", ">>", "<<", "<<-", "<<<", ">&", "<&", "<>", ">|", "<", ">"})
MAX_NESTING: Final = 30


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word. kind: text, param (`V:-d`), command (`hostname -i`), arith; `raw` is the source text."""

    kind: str
    text: str
    quoted: bool
    raw: str


@dataclass(slots=True)
class Token:
    """A word (`op` empty) or an operator. `start`/`end` are offsets in the source."""

    op: str
    parts: list[Part]
    start: int
    end: int
    line: int
    heredoc: str | None = None
    heredoc_quoted: bool = False

    @property
    def raw(self) -> str:
        """The word as written."""
        return self.op or "".join(part.raw for part in self.parts)

    @property
    def plain(self) -> str | None:
        """The word's text when nothing in it needs expansion and nothing is quoted (keywords, names)."""
        if self.op or any(part.kind != "text" or part.quoted for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)


@dataclass(slots=True)
class _Lexer:
    source: str
    at: int = 0
    line: int = 1
    tokens: list[Token] = field(default_factory=list)
    waiting: list[Token] = field(default_factory=list)  # heredoc operators whose body starts after this line

    def run(self) -> list[Token]:
        source = self.source
        while self.at < len(source):
            char = source[self.at]
            if char in " \t\r":
                self.at += 1
            elif source.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            elif source.startswith("\\\r\n", self.at):
                self.at += 3
                self.line += 1
            elif char == "#":
                end = source.find("\n", self.at)
                self.at = len(source) if end < 0 else end
            else:
                self._token()
        return self.tokens

    def _token(self) -> None:
        start, line = self.at, self.line
        op = next((item for item in OPERATORS if self.source.startswith(item, start)), "")
        if op:
            self.at += len(op)
            token = Token(op, [], start, self.at, line)
            self.tokens.append(token)
            if op == "\n":
                self.line += 1
                self._heredocs()
            elif op in ("<<", "<<-"):
                self.waiting.append(token)
            return
        parts = self._word()
        self.tokens.append(Token("", parts, start, self.at, line))

    def _heredocs(self) -> None:
        for token in self.waiting:
            after = next((item for item in self.tokens if item.start >= token.end and not item.op), None)
            word = after.parts if after else []
            mark = "".join(part.text for part in word)
            token.heredoc_quoted = any(part.quoted for part in word)
            lines: list[str] = []
            while self.at < len(self.source):
                end = self.source.find("\n", self.at)
                end = len(self.source) if end < 0 else end
                text = self.source[self.at : end]
                self.at = min(end + 1, len(self.source))
                self.line += 1
                stripped = text.lstrip("\t") if token.op == "<<-" else text
                if stripped.rstrip("\r") == mark:
                    break
                lines.append(stripped)
            token.heredoc = "".join(text + "\n" for text in lines)
        self.waiting.clear()

    def _word(self) -> list[Part]:
        parts: list[Part] = []
        source = self.source
        while self.at < len(source):
            char = source[self.at]
            if char in " \t\r\n|&;()<>":
                break
            if char == "\\":
                if source.startswith("\\\n", self.at):
                    self.at += 2
                    self.line += 1
                    continue
                text = source[self.at + 1 : self.at + 2]
                parts.append(Part("text", text, True, source[self.at : self.at + 2]))
                self.at += 2
            elif char == "'":
                parts.append(self._single())
            elif char == '"':
                parts += self._double()
            elif char == "$":
                parts.append(self._dollar(False))
            elif char == "`":
                parts.append(self._backtick(False))
            else:
                end = self.at
                while end < len(source) and source[end] not in " \t\r\n|&;()<>\\'\"$`":
                    end += 1
                parts.append(Part("text", source[self.at : end], False, source[self.at : end]))
                self.at = end
            if self._array_opens(parts):
                break
        return parts

    def _array_opens(self, parts: list[Part]) -> bool:
        """`NAME=(` and `NAME+=(`: the bracket is the next token."""
        return self.source[self.at : self.at + 1] == "(" and bool(parts) and parts[-1].text.endswith("=")

    def _single(self) -> Part:
        start = self.at
        end = self.source.find("'", start + 1)
        end = len(self.source) if end < 0 else end
        text = self.source[start + 1 : end]
        self.line += text.count("\n")
        self.at = min(end + 1, len(self.source))
        return Part("text", text, True, self.source[start : self.at])

    def _double(self) -> list[Part]:
        source = self.source
        start = self.at
        self.at += 1
        parts: list[Part] = [Part("text", "", True, '"')]
        text = ""
        begun = self.at

        def flush() -> None:
            nonlocal text
            if self.at > begun:
                parts.append(Part("text", text, True, source[begun : self.at]))
            text = ""

        while self.at < len(source) and source[self.at] != '"':
            char = source[self.at]
            if char == "\\" and source[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                following = source[self.at + 1]
                text += "" if following == "\n" else following
                self.line += following == "\n"
                self.at += 2
            elif char in "$`":
                flush()
                parts.append(self._dollar(True) if char == "$" else self._backtick(True))
                begun = self.at
            else:
                text += char
                self.line += char == "\n"
                self.at += 1
        flush()
        if self.at < len(source):
            self.at += 1
            parts.append(Part("text", "", True, '"'))
        if self.at == start:
            self.at += 1
        return parts

    def _backtick(self, quoted: bool) -> Part:
        start = self.at
        end = start + 1
        while end < len(self.source) and self.source[end] != "`":
            end += 2 if self.source[end] == "\\" else 1
        self.at = min(end + 1, len(self.source))
        raw = self.source[start : self.at]
        self.line += raw.count("\n")
        return Part("command", raw.strip("`"), quoted, raw)

    def _dollar(self, quoted: bool) -> Part:
        source, start = self.source, self.at
        if source.startswith("$((", start):
            end = source.find("))", start)
            if end >= 0:
                self.at = end + 2
                return Part("arith", source[start + 3 : end], quoted, source[start : self.at])
        if source.startswith("$(", start):
            self.at = closing(source, start + 2, "(", ")")
            raw = source[start : self.at]
            self.line += raw.count("\n")
            return Part("command", raw[2:-1] if raw.endswith(")") else raw[2:], quoted, raw)
        if source.startswith("${", start):
            self.at = closing(source, start + 2, "{", "}")
            raw = source[start : self.at]
            self.line += raw.count("\n")
            return Part("param", raw[2:-1] if raw.endswith("}") else raw[2:], quoted, raw)
        if source.startswith("$'", start) and not quoted:
            self.at += 1
            part = self._single()
            return Part("text", _ansi_c(part.text), True, "$" + part.raw)
        end = start + 1
        if end < len(source) and (source[end].isalpha() or source[end] == "_"):
            while end < len(source) and (source[end].isalnum() or source[end] == "_"):
                end += 1
        elif end < len(source) and source[end] in "0123456789@*#?$!-":
            end += 1
        self.at = max(end, start + 1)
        raw = source[start : self.at]
        if len(raw) == 1:
            return Part("text", "$", quoted, raw)
        return Part("param", raw[1:], quoted, raw)


def _ansi_c(text: str) -> str:
    for escape, char in (("\\n", "\n"), ("\\t", "\t"), ("\\'", "'"), ("\\\\", "\\")):
        text = text.replace(escape, char)
    return text


def closing(source: str, at: int, opening: str, closer: str, level: int = 0) -> int:
    """Offset behind the bracket that closes one opened before `at`; quotes inside are respected."""
    depth = 1
    while at < len(source):
        char = source[at]
        if char == "\\":
            at += 2
            continue
        if char == "'" and opening == "(":
            end = source.find("'", at + 1)
            at = len(source) if end < 0 else end + 1
            continue
        if char == '"':
            at = _skip_double(source, at + 1, level)
            continue
        if char == opening:
            depth += 1
        elif char == closer:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(source)


def _skip_double(source: str, at: int, level: int) -> int:
    if level > MAX_NESTING:
        return len(source)
    while at < len(source) and source[at] != '"':
        if source.startswith("$(", at):
            at = closing(source, at + 2, "(", ")", level + 1)
        else:
            at += 2 if source[at] == "\\" else 1
    return min(at + 1, len(source))


def tokens(source: str) -> list[Token]:
    """Tokens of a script. Never raises: what is unclosed runs to the end of the text."""
    return _Lexer(source).run()
