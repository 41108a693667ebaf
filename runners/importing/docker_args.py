"""`docker run` and `docker exec` (podman, nerdctl too): options, image or container, command inside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# Options without a value (docker run --help, docker 28); every other one takes the next word or `=value`.
_SWITCHES: Final = frozenset(
    {
        "--detach", "--interactive", "--tty", "--rm", "--privileged", "--init", "--no-healthcheck", "--publish-all",
        "--oom-kill-disable", "--read-only", "--sig-proxy", "--disable-content-trust", "--quiet", "--help",
        "--use-api-socket", "--no-hosts", "--replace", "--tls-verify",
    }
)  # fmt: skip
_SHORT_SWITCHES: Final = frozenset("ditPq")
_ALIASES: Final = {
    "-v": "--volume", "-e": "--env", "-w": "--workdir", "-u": "--user", "-p": "--publish", "-h": "--hostname",
    "-m": "--memory", "-l": "--label", "-c": "--cpu-shares", "-a": "--attach", "--net": "--network",
}  # fmt: skip


@dataclass(slots=True)
class Container:
    """A container start or entry, as written.

    options  (long name, value or None) in order, without environment and mounts
    inherit  names of `-e NAME`, whose value comes from the calling shell
    """

    verb: str
    target: str | None = None  # image of run, container of exec
    command: list[str] = field(default_factory=list)
    options: list[tuple[str, str | None]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    inherit: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)

    def option(self, name: str) -> str | None:
        """The last value of an option."""
        return next((value for key, value in reversed(self.options) if key == name), None)


def parse(argv: list[str]) -> Container | None:
    """The words behind the program's name: `run -d ... image command`. None for other verbs (rm, pull, logs)."""
    words = list(argv)
    while words and words[0].startswith("-"):  # docker's own options
        words.pop(0)
    if words[:1] == ["container"]:
        words.pop(0)
    if not words or words[0] not in ("run", "exec", "create"):
        return None
    found = Container(words.pop(0))
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            words.insert(0, word)
            break
        _option(found, word, words)
    if words:
        found.target = words.pop(0)
    entry = found.option("--entrypoint")
    found.command = [*([entry] if entry else []), *words]
    return found


def _option(found: Container, word: str, rest: list[str]) -> None:
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if not equals and name not in _SWITCHES:
            _put(found, name, rest.pop(0) if rest else "")
        else:
            _put(found, name, value if equals else None)
        return
    at = 1
    while at < len(word) and word[at] in _SHORT_SWITCHES:
        _put(found, f"-{word[at]}", None)
        at += 1
    if at < len(word):
        value = word[at + 1 :].removeprefix("=") or (rest.pop(0) if rest else "")
        _put(found, f"-{word[at]}", value)


def _put(found: Container, name: str, value: str | None) -> None:
    name = _ALIASES.get(name, name)
    if name == "--env" and value is not None:
        key, equals, text = value.partition("=")
        if equals:
            found.env[key] = text
        else:
            found.inherit.append(key)
    elif name == "--volume" and value is not None:
        found.mounts.append(value)
    elif name == "--mount" and value is not None:
        found.mounts.append(_mount(value))
    else:
        found.options.append((name, value))


def _mount(value: str) -> str:
    """`type=bind,source=/a,target=/b,readonly` -> `/a:/b:ro`; other kinds stay as written."""
    parts = dict(item.partition("=")[::2] for item in value.split(","))
    source = parts.get("source", parts.get("src"))
    target = parts.get("target", parts.get("dst", parts.get("destination")))
    if parts.get("type", "bind") != "bind" or not source or not target:
        return value
    readonly = "readonly" in parts or "ro" in parts
    return f"{source}:{target}{':ro' if readonly else ''}"
