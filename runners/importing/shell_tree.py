"""Tokens to a tree of commands: simple commands, lists, if, for, while, case, functions, groups."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from runners.importing.shell_words import MAX_NESTING, REDIRECTS, Part, Token, tokens

_CLOSERS: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", ";;", ";&", ";;&", ")"})


@dataclass(slots=True)
class Redirect:
    """`> file`, `2>&1`, or a heredoc (its body)."""

    op: str
    fd: str
    target: Token | None
    body: str | None = None
    quoted: bool = False


@dataclass(slots=True)
class Simple:
    """Assignments, words and redirections of one command. `arrays`: NAME -> (words, appended)."""

    words: list[Token] = field(default_factory=list)
    arrays: list[tuple[str, list[Token], bool]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    start: int = 0
    end: int = 0
    line: int = 1
    background: bool = False
    piped_from: bool = False  # reads the output of the command before it
    after: str = ""  # && or || before it
    arithmetic: str | None = None  # of a (( )) command


@dataclass(slots=True)
class If:
    branches: list[tuple[list[Node], list[Node]]]  # condition, body; an else has an empty condition
    start: int
    end: int
    line: int


@dataclass(slots=True)
class For:
    name: str
    items: list[Token]
    body: list[Node]
    start: int
    end: int
    line: int


@dataclass(slots=True)
class Loop:
    """while, until: the number of turns is not known, so the body is looked at once."""

    start: int
    end: int
    line: int
    body: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Case:
    word: Token
    branches: list[tuple[list[Token], list[Node]]]
    start: int
    end: int
    line: int


@dataclass(slots=True)
class Function:
    name: str
    body: list[Node]
    start: int
    end: int
    line: int


@dataclass(slots=True)
class Group:
    body: list[Node]
    redirects: list[Redirect]
    start: int
    end: int
    line: int


Node: TypeAlias = Simple | If | For | Loop | Case | Function | Group


_COUNTED = re.compile(
    r"\(\(\s*(\w+)\s*=\s*(\d{1,4})\s*;\s*\1\s*(<=?)\s*(\d{1,4})\s*;\s*(?:\1\s*\+\+|\+\+\s*\1|\1\s*\+=\s*1)\s*\)\)"
)
MAX_TURNS: Final = 64


def _number(value: int, place: Token) -> Token:
    return Token("", [Part("text", str(value), False, str(value))], place.start, place.end, place.line)


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokens(source)
        self.at = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def word_is(self, *texts: str) -> bool:
        token = self.peek()
        return token is not None and ((token.op or token.plain) in texts)

    def skip(self, *ops: str) -> None:
        while (token := self.peek()) is not None and token.op in ops:
            self.at += 1

    def body(self, *ends: str) -> list[Node]:
        """Commands up to a closing word (not consumed) or the end."""
        found: list[Node] = []
        self.depth += 1
        while self.peek() is not None:
            self.skip("\n", ";", "&")
            token = self.peek()
            if token is None or self.word_is(*ends):
                break
            if self.word_is(*_CLOSERS) and not ends:
                self.at += 1  # a stray closer: pass over it
                continue
            if self.word_is(*_CLOSERS):
                break
            before = self.at
            node = self.command()
            if node is not None:
                found.append(node)
            if self.at == before:
                self.at += 1
        self.depth -= 1
        return found

    def take(self, *texts: str) -> None:
        if self.word_is(*texts):
            self.at += 1

    def end(self) -> int:
        at = min(self.at, len(self.tokens)) - 1
        return self.tokens[at].end if at >= 0 else 0

    def command(self) -> Node | None:
        """The next command; None at the end or when commands are nested beyond reason."""
        while self.word_is("!"):
            self.at += 1
        token = self.peek()
        if token is None or self.depth > MAX_NESTING:
            return None
        self.depth += 1
        node = self._command(token)
        self.depth -= 1
        return node

    def _command(self, token: Token) -> Node | None:
        word = token.op or token.plain
        if word == "if":
            return self._if(token)
        if word in ("for", "select"):
            return self._for(token)
        if word in ("while", "until"):
            self.at += 1
            self.body("do")
            self.take("do")
            body = self.body("done")
            self.take("done")
            self._trailing()
            return Loop(token.start, self.end(), token.line, body)
        following = self.peek(1)
        if word == "(" and following is not None and following.op == "(" and following.start == token.end:
            return self._arithmetic(token)
        if word == "case":
            return self._case(token)
        if word in ("{", "("):
            self.at += 1
            body = self.body("}" if word == "{" else ")")
            self.take("}", ")")
            redirects = self._trailing()
            return Group(body, redirects, token.start, self.end(), token.line)
        function = self._function(token)
        return function if function is not None else self._simple()

    def _arithmetic(self, token: Token) -> Simple:
        """(( expression ))"""
        depth = 0
        while (item := self.peek()) is not None:
            depth += (item.op == "(") - (item.op == ")")
            self.at += 1
            if depth <= 0:
                break
        text = self.source[token.start : self.end()]
        return Simple(start=token.start, end=self.end(), line=token.line, arithmetic=text.strip("()").strip())

    def _if(self, token: Token) -> If:
        self.at += 1
        branches: list[tuple[list[Node], list[Node]]] = []
        condition = self.body("then")
        self.take("then")
        branches.append((condition, self.body("elif", "else", "fi")))
        while self.word_is("elif"):
            self.at += 1
            condition = self.body("then")
            self.take("then")
            branches.append((condition, self.body("elif", "else", "fi")))
        if self.word_is("else"):
            self.at += 1
            branches.append(([], self.body("fi")))
        self.take("fi")
        self._trailing()
        return If(branches, token.start, self.end(), token.line)

    def _for(self, token: Token) -> Node:
        self.at += 1
        name = self.peek()
        if name is None or name.op:
            begun = self.at
            while self.peek() is not None and not self.word_is("do"):  # for ((...))
                self.at += 1
            head = self.source[self.tokens[min(begun, len(self.tokens) - 1)].start : self.end()]
            self.take("do")
            body = self.body("done")
            self.take("done")
            counted = _COUNTED.search(head)
            if counted is None:
                return Loop(token.start, self.end(), token.line, body)
            numbers = range(int(counted[2]), int(counted[4]) + (counted[3] == "<="))[:MAX_TURNS]
            listed = [_number(item, token) for item in numbers]
            return For(counted[1], listed, body, token.start, self.end(), token.line)
        self.at += 1
        items: list[Token] = []
        self.skip("\n")
        if self.word_is("in"):
            self.at += 1
            while (item := self.peek()) is not None and not item.op:
                items.append(item)
                self.at += 1
        self.skip("\n", ";")
        self.take("do")
        body = self.body("done")
        self.take("done")
        self._trailing()
        return For(name.plain or "", items, body, token.start, self.end(), token.line)

    def _case(self, token: Token) -> Node:
        self.at += 1
        word = self.peek()
        self.at += 1
        self.skip("\n")
        self.take("in")
        branches: list[tuple[list[Token], list[Node]]] = []
        while self.peek() is not None and not self.word_is("esac"):
            self.skip("\n", ";;", ";")
            if self.word_is("esac"):
                break
            self.take("(")
            patterns: list[Token] = []
            while (item := self.peek()) is not None and item.op != ")" and item.op != "\n":
                if not item.op:
                    patterns.append(item)
                self.at += 1
            self.take(")")
            before = self.at
            branches.append((patterns, self.body(";;", ";&", ";;&", "esac")))
            self.skip(";;", ";&", ";;&")
            if self.at == before and not self.word_is("esac"):
                self.at += 1
        self.take("esac")
        if word is None:
            return Loop(token.start, self.end(), token.line)
        return Case(word, branches, token.start, self.end(), token.line)

    def _function(self, token: Token) -> Function | None:
        first, second, third = self.peek(1), self.peek(2), self.peek(3)
        if token.plain == "function" and first is not None and first.plain:
            self.at += 2
            name = first.plain
            self.skip("(", ")")
        elif (
            token.plain
            and first is not None
            and second is not None
            and first.op == "("
            and second.op == ")"
            and third is not None
        ):
            self.at += 3
            name = token.plain
        else:
            return None
        self.skip("\n")
        body = self.command()
        return Function(name, [body] if body is not None else [], token.start, self.end(), token.line)

    def _trailing(self) -> list[Redirect]:
        """Redirections after a compound command."""
        holder = Simple()
        while self._redirect(holder):
            pass
        return holder.redirects

    def _redirect(self, simple: Simple) -> bool:
        token, following = self.peek(), self.peek(1)
        fd = ""
        if (
            token is not None
            and following is not None
            and token.plain is not None
            and token.plain.isdecimal()
            and following.op in REDIRECTS
            and token.end == following.start
        ):
            fd, token = token.plain, following
            self.at += 1
        if token is None or token.op not in REDIRECTS:
            return False
        self.at += 1
        target = self.peek()
        if target is not None and not target.op:
            self.at += 1
        else:
            target = None
        simple.redirects.append(Redirect(token.op, fd, target, token.heredoc, token.heredoc_quoted))
        return True

    def _simple(self) -> Simple:
        first = self.tokens[self.at]
        simple = Simple(start=first.start, line=first.line)
        previous = self.tokens[self.at - 1].op if self.at else ""
        simple.piped_from = previous in ("|", "|&")
        simple.after = previous if previous in ("&&", "||") else ""
        while (token := self.peek()) is not None:
            if self._redirect(simple):
                continue
            if token.op:
                if token.op == "(" and simple.words and self._array(simple):
                    continue
                break
            simple.words.append(token)
            self.at += 1
        simple.end = self.end()
        token = self.peek()
        if token is not None and token.op == "&":
            simple.background = True
            self.at += 1
        elif token is not None and token.op in ("|", "|&", "&&", "||"):
            self.at += 1
            self.skip("\n")
        elif token is not None and token.op in ("(", "<", ">"):
            self.at += 1
        return simple

    def _array(self, simple: Simple) -> bool:
        """`NAME=(words)`: take the words as an array."""
        holder = simple.words[-1]
        name = holder.plain
        opening = self.peek()
        if name is None or not name.endswith("=") or opening is None or holder.end != opening.start:
            return False
        self.at += 1
        words: list[Token] = []
        while (token := self.peek()) is not None and token.op != ")":
            if not token.op:
                words.append(token)
            self.at += 1
        self.take(")")
        simple.words.pop()
        simple.arrays.append((name.rstrip("=").rstrip("+"), words, name.endswith("+=")))
        return True


def parse(source: str) -> list[Node]:
    """The commands of a script. Never raises."""
    return _Parser(source).body()
