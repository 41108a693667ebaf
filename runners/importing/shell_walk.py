"""Walk a script's commands in order, with its variables, and hand every command to a listener. Nothing is executed.

A condition that cannot be decided forks the walk: the script is walked once for each answer, so that a script for both
nodes gives both commands.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from runners.importing.shell_expand import Expander, Scope
from runners.importing.shell_tree import Case, For, Function, Group, If, Loop, Node, Redirect, Simple, parse
from runners.importing.shell_words import Token

MAX_PATHS: Final = 32
MAX_STEPS: Final = 20_000
MAX_DEPTH: Final = 12
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_PAIR = re.compile(r"\[([^\]]+)\]=(.*)\Z", re.DOTALL)
_ENTRY = re.compile(r"([A-Za-z_]\w*)\[([^\]]+)\]=(.*)\Z", re.DOTALL)
_NUMERIC: Final = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_QUIET: Final = frozenset({"true", ":", "then", "return"})


@dataclass(slots=True)
class Command:
    """One simple command, expanded.

    env         assignments before the words
    redirects   (operator with fd, target) of files; heredoc bodies are in `body`
    """

    words: list[str]
    env: dict[str, str]
    exported: dict[str, str]
    node: Simple
    redirects: list[str]
    body: str | None
    host: str | None = None
    scope: Scope = field(default_factory=Scope)


# Says whether it placed the command; a walker for nested scripts is given along.
Listener = Callable[["Walker", Command], bool]


class _Stop(Exception):  # noqa: N818 - a jump out of the walk, no error
    """`exit`, or too many steps."""


class Walker:
    """One walk over one source text (scripts inside scripts get walkers of their own)."""

    def __init__(self, source: str, listener: Listener, decisions: list[int], asked: list[int], depth: int = 0) -> None:
        self.source = source
        self.nodes = parse(source)
        self.listener = listener
        self.decisions = decisions  # answers to undecidable conditions, in order of asking
        self.asked = asked  # number of answers that each of them had
        self.depth = depth
        self.steps = 0
        self.functions: dict[str, list[Node]] = {}
        self.files: dict[str, str] = {}
        self.placed: set[int] = set()  # start offsets of commands that found a place
        self.setters: dict[str, set[int]] = {}  # name -> commands that set it

    def run(self, scope: Scope) -> None:
        """Walk to the end or to `exit`."""
        with suppress(_Stop):
            self._body(self.nodes, scope)
        for name in scope.used | set(scope.exported):
            self.placed |= self.setters.get(name, set())

    def nested(self, source: str, scope: Scope) -> Walker | None:
        """Walk a script inside this one (bash -c, ssh, heredoc); None when nesting is too deep."""
        if self.depth >= MAX_DEPTH:
            return None
        inner = Walker(source, self.listener, self.decisions, self.asked, self.depth + 1)
        inner.files = self.files
        inner.run(scope)
        return inner

    def text_of(self, node: Node) -> str:
        """The node as written."""
        return self.source[node.start : node.end].strip()

    def _body(self, nodes: Sequence[Node], scope: Scope) -> bool | None:
        """Walk commands; the result is the last one's status: True, False or not known."""
        status: bool | None = True
        for node in nodes:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise _Stop
            if isinstance(node, Simple):
                if node.after == "&&" and status is False:
                    continue
                if node.after == "||" and status is not False:
                    continue
            status = self._node(node, scope)
        return status

    def _node(self, node: Node, scope: Scope) -> bool | None:
        if isinstance(node, Simple):
            return self._simple(node, scope)
        if isinstance(node, If):
            self._if(node, scope)
        elif isinstance(node, For):
            items = Expander(scope).words(node.items)
            for item in items[:64]:
                scope.values[node.name] = item
                self._body(node.body, scope)
        elif isinstance(node, Case):
            self._case(node, scope)
        elif isinstance(node, Function):
            self.functions[node.name] = node.body
        elif isinstance(node, Group):
            subshell = self.source[node.start : node.start + 1] == "("
            self._body(node.body, scope.copy() if subshell else scope)
        elif isinstance(node, Loop):
            self._body(node.body, scope)
            return None
        return True

    def _choose(self, count: int) -> int:
        """The answer to an undecidable question with `count` answers on this path."""
        at = len(self.asked)
        self.asked.append(count)
        return self.decisions[at] if at < len(self.decisions) else 0

    def _if(self, node: If, scope: Scope) -> None:
        open_branches: list[list[Node]] = []
        for condition, body in node.branches:
            status = self._condition(condition, scope) if condition else True
            if status is False:
                continue
            open_branches.append(body)
            if status is True:
                break
        else:
            if open_branches:
                open_branches.append([])  # no branch may be taken
        if open_branches:
            at = self._choose(len(open_branches)) if len(open_branches) > 1 else 0
            self._body(open_branches[min(at, len(open_branches) - 1)], scope)

    def _case(self, node: Case, scope: Scope) -> None:
        value, known = Expander(scope).text(node.word)
        bodies = []
        for patterns, body in node.branches:
            texts = [Expander(scope).text(item)[0] for item in patterns]
            if not known:
                bodies.append(body)
            elif any(fnmatch.fnmatchcase(value, text) for text in texts):
                bodies = [body]
                break
        if bodies:
            at = self._choose(len(bodies)) if len(bodies) > 1 else 0
            self._body(bodies[min(at, len(bodies) - 1)], scope)

    def _condition(self, nodes: Sequence[Node], scope: Scope) -> bool | None:
        status: bool | None = None
        for node in nodes:
            if isinstance(node, Simple) and node.after == "&&" and status is False:
                continue
            if isinstance(node, Simple) and node.after == "||" and status is True:
                continue
            status = self._node(node, scope)
        return status

    def _simple(self, node: Simple, scope: Scope) -> bool | None:
        expander = Expander(scope)
        if node.arithmetic is not None:
            self.placed.add(node.start)
            return expander.truth(node.arithmetic)
        for name, items, appended in node.arrays:
            self.setters.setdefault(name, set()).add(node.start)
            values = expander.words(items)
            pairs = [_PAIR.match(value) for value in values]
            if name in scope.maps or (pairs and all(pairs)):
                made = {match[1].strip("\"'"): match[2] for match in pairs if match}
                scope.maps[name] = {**scope.maps.get(name, {}), **made} if appended else made
            else:
                scope.arrays[name] = [*scope.arrays.get(name, []), *values] if appended else values
        if self._entry(node, scope, expander):
            return True
        lead = []
        for word in node.words:
            parsed = assignment(word)
            if parsed is None:
                break
            lead.append(parsed)
        words = node.words[len(lead) :]
        env: dict[str, str] = {}
        for name, appended, value in lead:
            text, known = expander.text(value)
            if words:
                env[name] = scope.values.get(name, "") + text if appended else text
            else:
                self._assign(name, text, known, appended, scope, node)
        if not words:
            return True
        argv = expander.words(words)
        if not argv:
            return True
        builtin = self._builtin(argv, words, node, scope, expander)
        if builtin is not None:
            return builtin
        if argv[0] in self.functions:
            self._call(argv, scope, node)
            return True
        command = Command(argv, env, scope.environment(), node, [], None, scope=scope)
        self._redirects(node.redirects, command, expander)
        if self.listener(self, command):
            self.placed.add(node.start)
        return None

    def _entry(self, node: Simple, scope: Scope, expander: Expander) -> bool:
        """`NAME[key]=value` of an associative array."""
        text, known = expander.text(node.words[0]) if len(node.words) == 1 else ("", False)
        match = _ENTRY.match(text)
        if match is None or not known or match[1] not in scope.maps:
            return False
        self.setters.setdefault(match[1], set()).add(node.start)
        scope.maps[match[1]][match[2]] = match[3]
        return True

    def _assign(self, name: str, text: str, known: bool, appended: bool, scope: Scope, node: Simple) -> None:
        self.setters.setdefault(name, set()).add(node.start)
        if appended:
            text = scope.values.get(name, "") + text
            known = known and name not in scope.unknown
        scope.arrays.pop(name, None)
        scope.values[name] = text
        (scope.unknown.discard if known else scope.unknown.add)(name)

    def _builtin(
        self, argv: list[str], words: list[Token], node: Simple, scope: Scope, expander: Expander
    ) -> bool | None:
        """True or False for a command that the walk itself understands, None for every other one."""
        name = argv[0]
        if name in ("export", "declare", "typeset", "local", "readonly"):
            self._declare(name, words[1:], node, scope, expander)
            return True
        if name == "unset":
            for item in argv[1:]:
                scope.values.pop(item, None)
                scope.arrays.pop(item, None)
                scope.maps.pop(item, None)
                scope.exported.pop(item, None)
            self.placed.add(node.start)
            return True
        if name in ("[", "[[", "test"):
            self.placed.add(node.start)
            return self._test(node, scope, expander)
        if name == "shift" and scope.arguments is not None:
            del scope.arguments[: int(argv[1]) if len(argv) > 1 and argv[1].isdecimal() else 1]
            self.placed.add(node.start)
            return True
        if name == "exit":
            self.placed.add(node.start)
            raise _Stop
        if name in _QUIET or name == "false":
            self.placed.add(node.start)
            return name != "false"
        return None

    def _declare(self, name: str, words: Sequence[Token], node: Simple, scope: Scope, expander: Expander) -> None:
        flags = [item.plain for item in words if (item.plain or "").startswith("-")]
        exports = name == "export" or any("x" in (flag or "") for flag in flags)
        understood = True
        for word in words:
            parsed = assignment(word)
            if parsed is not None:
                target, appended, value = parsed
                text, known = expander.text(value)
                self._assign(target, text, known, appended, scope, node)
            else:
                target = word.plain or ""
                if not re.fullmatch(r"[A-Za-z_]\w*", target):
                    understood = understood and target.startswith("-")
                    continue
                self.setters.setdefault(target, set()).add(node.start)
            if exports:
                scope.exported[target] = None
        if any("A" in (flag or "") for flag in flags):
            for word in words:
                if re.fullmatch(r"[A-Za-z_]\w*", word.plain or ""):
                    scope.maps.setdefault(word.plain or "", {})
        for target, _, _ in node.arrays:
            if exports:
                scope.exported[target] = None
        if exports and understood:
            self.placed.add(node.start)

    def _call(self, argv: list[str], scope: Scope, node: Simple) -> None:
        if self.depth >= MAX_DEPTH:
            return
        self.depth += 1
        outer, scope.arguments = scope.arguments, argv[1:]
        self._body(self.functions[argv[0]], scope)
        scope.arguments = outer
        self.depth -= 1
        self.placed.add(node.start)

    def _redirects(self, redirects: Sequence[Redirect], command: Command, expander: Expander) -> None:
        for item in redirects:
            if item.op in ("<<", "<<-"):
                body = item.body or ""
                command.body = body if item.quoted else expander.heredoc(body)
            elif item.target is not None:
                target, _ = expander.text(item.target)
                if item.op == "<<<":
                    command.body = target
                else:
                    command.redirects.append(f"{item.fd}{item.op}{'' if item.op.endswith('&') else ' '}{target}")

    def _test(self, node: Simple, scope: Scope, expander: Expander) -> bool | None:
        fields = [expander.text(word) for word in node.words[1:]]
        if fields and fields[-1][0] in ("]", "]]"):
            fields.pop()
        return decide(fields)


def assignment(word: Token) -> tuple[str, bool, Token] | None:
    """(name, appended, value) of a word of the form NAME=value, else None."""
    if not word.parts or word.parts[0].kind != "text" or word.parts[0].quoted:
        return None
    match = _ASSIGN.match(word.parts[0].text)
    if match is None:
        return None
    first = word.parts[0]
    rest = first.text[match.end() :]
    parts = [type(first)("text", rest, False, rest), *word.parts[1:]] if rest else list(word.parts[1:])
    return match[1], bool(match[3]), Token("", parts, word.start, word.end, word.line)


def decide(fields: list[tuple[str, bool]]) -> bool | None:
    """The value of a test's words, None when it depends on what only the node knows."""
    for joiner, whole in (("||", any), ("-o", any), ("&&", all), ("-a", all)):
        at = next((index for index, (text, known) in enumerate(fields) if text == joiner and known), None)
        if at:
            sides = [decide(fields[:at]), decide(fields[at + 1 :])]
            if whole is any and True in sides:
                return True
            if whole is all and False in sides:
                return False
            return None if None in sides else whole(bool(side) for side in sides)
    if fields and fields[0][0] == "!":
        value = decide(fields[1:])
        return None if value is None else not value
    if len(fields) == 2 and fields[0][0] in ("-z", "-n"):
        text, known = fields[1]
        if not known:
            return None
        return (text == "") == (fields[0][0] == "-z")
    if len(fields) == 1:
        return bool(fields[0][0]) if fields[0][1] else None
    if len(fields) == 3:
        return _compare(fields)
    return None


def _compare(fields: list[tuple[str, bool]]) -> bool | None:
    (left, left_known), (op, _), (right, right_known) = fields
    if not left_known or not right_known:
        return None
    if op in ("=", "=="):
        return fnmatch.fnmatchcase(left, right) if any(sign in right for sign in "*?[") else left == right
    if op == "!=":
        return left != right
    number = _NUMERIC.get(op)
    if number is not None and left.lstrip("-").isdecimal() and right.lstrip("-").isdecimal():
        return bool(number(int(left), int(right)))
    return None


def leaves(nodes: Sequence[Node]) -> list[Simple | Loop]:
    """All simple commands and loops of a tree, in the order of the text."""
    found: list[Simple | Loop] = []
    for node in nodes:
        if isinstance(node, Simple | Loop):
            found.append(node)
        elif isinstance(node, If):
            for condition, body in node.branches:
                found += leaves(condition) + leaves(body)
        elif isinstance(node, Case):
            for _, body in node.branches:
                found += leaves(body)
        else:
            found += leaves(node.body)
    return found
