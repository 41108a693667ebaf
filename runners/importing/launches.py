"""Commands to engine launches: unwrap docker, ssh, bash -c, tmux, numactl and the like down to an engine's program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from runners.importing import docker_args
from runners.importing.docker_args import Container
from runners.importing.shell_expand import Scope
from runners.importing.shell_tree import Loop, Simple
from runners.importing.shell_walk import MAX_PATHS, Command, Walker, leaves

_ENGINE_MODULES: Final = {
    "sglang.launch_server": "sglang",
    "sglang.srt.entrypoints.http_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "nvidia-docker"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ash"})
_RUNS: Final = frozenset({"exec", "nohup", "setsid", "nice", "time", "sudo", "srun", "numactl", "taskset", "stdbuf"})
_SSH_WITH_VALUE: Final = frozenset("bcDEeFIiJLlmOopQRSWw")
_ASSIGN = re.compile(r"[A-Za-z_]\w*=")


@dataclass(slots=True)
class Launch:
    """One start of an engine, as the script would do it.

    argv     the engine's program and arguments
    env      its environment as far as the script sets it
    wrapper  words before the program: nohup, numactl ..., taskset ...
    """

    engine: str
    argv: list[str]
    env: dict[str, str]
    line: int
    wrapper: list[str] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    container: Container | None = None
    program: str | None = None  # docker, podman, nerdctl
    host: str | None = None
    background: bool = False
    path: int = 0  # 0: the walk in which every open question took its first answer


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a command: the environment it gets, its container (of which program), its host."""

    env: dict[str, str]
    container: Container | None = None
    program: str | None = None
    host: str | None = None


@dataclass(slots=True)
class Script:
    """What a script holds."""

    launches: list[Launch] = field(default_factory=list)
    unplaced: list[dict[str, Any]] = field(default_factory=list)


def engine_module(argv: list[str]) -> int | None:
    """Index of the `-m` before an engine's module, None when there is none."""
    return next((at for at, word in enumerate(argv[:-1]) if word == "-m" and argv[at + 1] in _ENGINE_MODULES), None)


def engine_at(argv: list[str]) -> tuple[int, str] | None:
    """(index of the engine's program in the words, engine), None when no engine is started."""
    for at, word in enumerate(argv):
        name = PurePosixPath(word).name
        if name in ("vllm", "sglang") and argv[at + 1 : at + 2] == ["serve"]:
            return at, name
        rest = argv[at + 1 :]
        if name == "torchrun" or rest[:2] == ["-m", "torch.distributed.run"]:
            module = engine_module(rest)
            return None if module is None else (at, _ENGINE_MODULES[rest[module + 1]])
        if re.fullmatch(r"(?:python|pypy)[\d.]*", name):
            for step, item in enumerate(rest):
                if item == "-m" and step + 1 < len(rest):
                    engine = _ENGINE_MODULES.get(rest[step + 1])
                    return (at, engine) if engine else None
                if not item.startswith("-"):
                    script = PurePosixPath(item).name
                    if script in ("launch_server.py", "api_server.py"):
                        return at, "sglang" if script == "launch_server.py" else "vllm"
                    break
    return None


def _by_image(image: str | None, command: list[str]) -> str | None:
    """The engine of an image whose entrypoint starts it: only options stand behind the image's name."""
    if image is None or (command and not command[0].startswith("-")):
        return None
    name = image.rsplit("/", 2)
    text = "/".join(name[-2:])
    return "vllm" if "vllm" in text else "sglang" if "sglang" in text and command else None


class Finder:
    """Collects the launches of one walk."""

    def __init__(self, path: int) -> None:
        self.path = path
        self.launches: list[Launch] = []
        self.unplaced: list[dict[str, Any]] = []  # what stands beside a launch inside an inner script

    def __call__(self, walker: Walker, command: Command) -> bool:
        """Place a command: True when it is a launch, or holds one."""
        if command.words[0] in ("cat", "tee") and command.body is not None:
            return self._written(walker, command)
        before = len(self.launches)
        env = {**command.exported, **command.env}
        self._unwrap(walker, command, list(command.words), Around(env, host=command.host))
        return len(self.launches) > before

    def _written(self, walker: Walker, command: Command) -> bool:
        """`cat > run.sh <<EOF`: keep the text, in case the script runs it later."""
        target = next((item.split(" ", 1)[-1] for item in command.redirects if item.startswith((">", "1>"))), None)
        if target is None and command.words[0] == "tee" and len(command.words) > 1:
            target = command.words[-1]
        if target and command.body is not None:
            name = PurePosixPath(target).name
            walker.files[name] = command.body
            walker.setters.setdefault(f"file {name}", set()).add(command.node.start)
        return False

    def _unwrap(self, walker: Walker, command: Command, words: list[str], around: Around) -> None:
        wrapper: list[str] = []
        while words:
            name = PurePosixPath(words[0]).name
            if name == "env":
                words = _env(words[1:], around.env)
                continue
            if name == "eval":
                self._evaluated(walker, command, " ".join(words[1:]))
                return
            if name in _CONTAINERS:
                inner = docker_args.parse(words[1:])
                if inner is not None:
                    self.container(walker, command, inner, replace(around, program=name), wrapper)
                return
            if name in _SHELLS or (name in walker.files and "/" in words[0]):
                before = len(self.launches)
                self._shell(walker, command, words if name in _SHELLS else ["bash", *words], around)
                for launch in self.launches[before:]:
                    launch.wrapper[:0] = wrapper
                return
            if name == "ssh":
                self._ssh(walker, command, words)
                return
            if name in ("tmux", "screen"):
                self._terminal(walker, command, words, around)
                return
            found = engine_at(words)
            if found is not None and found[0] == 0:
                self._launch(command, found[1], words, around, wrapper)
                return
            if found is None and not any(
                PurePosixPath(word).name in _CONTAINERS | _SHELLS | {"ssh", "env"}
                or (name in _RUNS and PurePosixPath(word).name in walker.files)
                for word in words[1:]
            ):
                return
            word = words.pop(0)
            if wrapper[:1] == ["sudo"] and _ASSIGN.match(word):  # sudo sets variables as env does
                key, _, value = word.partition("=")
                around.env[key] = value
            else:
                wrapper.append(word)

    def _launch(self, command: Command, engine: str, argv: list[str], around: Around, wrapper: list[str]) -> None:
        self.launches.append(
            Launch(
                engine,
                argv,
                dict(around.env),
                command.node.line,
                wrapper,
                command.redirects,
                around.container,
                around.program,
                around.host,
                command.node.background,
                self.path,
            )
        )

    def container(self, walker: Walker, command: Command, inner: Container, around: Around, wrapper: list[str]) -> None:
        """A container's start or entry: its command, or its image's entrypoint, may be an engine."""
        env = dict(inner.env)
        for name in inner.inherit:
            env[name] = around.env.get(name, f"${name}")
        inside = replace(around, env=env, container=inner)
        engine = _by_image(inner.target, inner.command) if inner.verb != "exec" else None
        if engine is not None:
            self._launch(command, engine, list(inner.command), inside, wrapper)
            return
        self._unwrap(walker, command, list(inner.command), inside)

    def _nested(
        self,
        walker: Walker,
        command: Command,
        source: str,
        around: Around,
        arguments: list[str] | None = None,
        name: str | None = None,
    ) -> None:
        """A script inside the script: bash -c, a heredoc, a file written before."""
        scope = Scope(values=dict(around.env), exported=dict.fromkeys(around.env), arguments=arguments)
        if name is not None:
            scope.values["0"] = name
        outer = self.launches
        self.launches = []
        inner = walker.nested(source, scope)
        inside, self.launches = self.launches, outer
        if inside and inner is not None:
            self.unplaced += [{**item, "line": command.node.line} for item in left_over(inner, inner.placed)]
        for launch in inside:
            launch.line = command.node.line
            launch.container = launch.container or around.container
            launch.program = launch.program or around.program
            launch.host = launch.host or around.host
            launch.redirects = launch.redirects or command.redirects
            launch.background = launch.background or command.node.background
        self.launches += inside

    def _shell(self, walker: Walker, command: Command, words: list[str], around: Around) -> None:
        rest = words[1:]
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option in ("-o", "+o"):
                del rest[:1]
            elif "c" in option.lstrip("-") and not option.startswith("--"):
                if rest:
                    self._nested(walker, command, rest[0], around, rest[2:], rest[1] if len(rest) > 1 else None)
                return
        if not rest and command.body is not None:
            self._nested(walker, command, command.body, around)
        elif rest:
            name = PurePosixPath(rest[0]).name
            source = walker.files.get(name)
            if source is not None:
                before = len(self.launches)
                self._nested(walker, command, source, around, rest[1:])
                if len(self.launches) > before:
                    walker.placed |= walker.setters.get(f"file {name}", set())

    def _evaluated(self, walker: Walker, command: Command, source: str) -> None:
        """eval: the words, joined, are a script in the same scope."""
        before = len(self.launches)
        walker.nested(source, command.scope)
        for launch in self.launches[before:]:
            launch.line = command.node.line

    def _ssh(self, walker: Walker, command: Command, words: list[str]) -> None:
        rest = words[1:]
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if len(option) == 2 and option[1] in _SSH_WITH_VALUE:
                del rest[:1]
        if not rest:
            return
        host = rest.pop(0).rpartition("@")[2]
        text = " ".join(rest)
        if command.body is not None and (not rest or PurePosixPath(text.split()[0]).name in _SHELLS):
            text = command.body
        self._nested(walker, command, text, Around({}, host=host))

    def _terminal(self, walker: Walker, command: Command, words: list[str], around: Around) -> None:
        """tmux new-session ... 'command', tmux send-keys ... 'command' Enter, screen -dmS name command."""
        for word in words[1:]:
            if " " in word:
                self._typed(walker, command, words, word, around)
                return
        found = engine_at(words)
        if found is not None:
            self._launch(command, found[1], words[found[0] :], around, words[: found[0]])
        elif (at := next((at for at, word in enumerate(words) if word in _SHELLS | _CONTAINERS), None)) is not None:
            self._unwrap(walker, command, words[at:], around)

    def _typed(self, walker: Walker, command: Command, words: list[str], text: str, around: Around) -> None:
        """A command typed into a terminal: what `send-keys` typed there before (exports, cd) holds for it."""
        target = words[words.index("-t") + 1 :][:1] if "-t" in words and "send-keys" in words else []
        key = f"terminal {' '.join(target)}"
        source = f"{walker.files.get(key, '')}{text}\n" if target else text
        before = len(self.launches)
        self._nested(walker, command, source, around)
        if target and len(self.launches) == before:
            walker.files[key] = source
            walker.setters.setdefault(f"file {key}", set()).add(command.node.start)
        elif target:
            walker.placed |= walker.setters.get(f"file {key}", set())


def _env(words: list[str], env: dict[str, str]) -> list[str]:
    """The words behind `env`; its assignments go into the environment."""
    rest = list(words)
    while rest:
        if rest[0] == "-i":
            env.clear()
            rest.pop(0)
        elif rest[0] == "-u" and len(rest) > 1:
            env.pop(rest[1], None)
            del rest[:2]
        elif _ASSIGN.match(rest[0]):
            name, _, value = rest.pop(0).partition("=")
            env[name] = value
        else:
            break
    return rest


def _holds(loop: Loop, placed: set[int]) -> bool:
    return any(node.start in placed or (isinstance(node, Loop) and _holds(node, placed)) for node in leaves(loop.body))


def left_over(walker: Walker, placed: set[int]) -> list[dict[str, Any]]:
    """Commands of a script without a place: {line, text} as written, heredocs with their text."""
    found = []
    nodes = leaves(walker.nodes)
    while any(isinstance(node, Loop) and _holds(node, placed) for node in nodes):
        # a loop around a launch: what else stands in it is listed one by one
        nodes = [
            item
            for node in nodes
            for item in (leaves(node.body) if isinstance(node, Loop) and _holds(node, placed) else [node])
        ]
    for node in nodes:
        text = walker.text_of(node)
        if node.start in placed or not text or text in ("true", ":"):
            continue
        bodies = [item.body for item in node.redirects if item.body] if isinstance(node, Simple) else []
        found.append({"line": node.line, "text": "\n".join([text, *bodies]).rstrip()})
    return found


def read_script(source: str) -> Script:
    """Launches of a script and what has no place. Nothing is executed."""
    script = Script()
    seen: set[str] = set()
    placed: set[int] = set()
    decisions: list[list[int]] = [[]]
    walker: Walker | None = None
    inner: list[dict[str, Any]] = []
    for number in range(MAX_PATHS):
        if number >= len(decisions):
            break
        finder = Finder(number)
        asked: list[int] = []
        walker = Walker(source, finder, decisions[number], asked)
        walker.run(Scope())
        placed |= walker.placed
        inner += finder.unplaced
        for at in range(len(decisions[number]), len(asked)):
            answered = [*decisions[number], *[0] * (at - len(decisions[number]))]
            decisions += [[*answered, other] for other in range(1, asked[at])]
        for launch in finder.launches:
            key = repr((launch.line, launch.argv, launch.env, launch.host))
            if key not in seen:
                seen.add(key)
                script.launches.append(launch)
    first = min((launch.path for launch in script.launches), default=0)
    for launch in script.launches:  # a path that ends in `exit` starts nothing: the first that does is the main one
        launch.path = 0 if launch.path == first else launch.path
    if walker is not None:
        script.unplaced = left_over(walker, placed)
        told = {item["text"] for item in script.unplaced}
        for item in inner:
            if item["text"] not in told:
                told.add(item["text"])
                script.unplaced.append(item)
    return script


def launches_of(container: Container, program: str, line: int, files: dict[str, str] | None = None) -> Script:
    """Launches of a container that is described elsewhere (a compose service, a pod).

    files  scripts that are found in it: name -> text
    """
    finder = Finder(0)
    walker = Walker("", finder, [], [])
    walker.files.update(files or {})
    command = Command([], {}, {}, Simple(line=line), [], None)
    finder.container(walker, command, container, Around({}, program=program), [])
    return Script(finder.launches, finder.unplaced)
