"""Which hosts an operator's ssh_config names: what `twinrail init` proposes as nodes."""

from __future__ import annotations

import glob
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 50
MOST_BYTES = 1 << 20
FORGES = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "ssh.dev.azure.com")  # nobody's GPU node


@dataclass(frozen=True, slots=True)
class SshHost:
    """One alias. `address`: its HostName, if the file gives one."""

    alias: str
    address: str | None = None


def ssh_hosts(path: Path) -> list[SshHost]:
    """Aliases without wildcards in the order of the file, `Include` followed. A missing or unreadable file has none."""
    found: dict[str, SshHost] = {}
    _read(path, found, [])
    return [h for h in found.values() if h.alias not in FORGES and (h.address or "") not in FORGES]


def _read(path: Path, found: dict[str, SshHost], seen: list[Path]) -> None:
    if path in seen or len(seen) >= MOST_FILES:
        return
    seen.append(path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    here: list[str] = []
    for line in text.splitlines():
        word, values = _words(line)
        if word == "host":
            here = [v for v in values if not any(c in v for c in "*?!%")]
            for alias in here:
                found.setdefault(alias, SshHost(alias))
        elif word == "match":
            here = []
        elif word == "hostname" and values:
            for alias in here:
                if found[alias].address is None:
                    found[alias] = SshHost(alias, values[0].replace("%h", alias))
        elif word == "include":
            for pattern in values:
                full = os.path.join(path.parent, os.path.expanduser(pattern))
                for name in sorted(glob.glob(full)):
                    _read(Path(name), found, seen)


def _words(line: str) -> tuple[str, list[str]]:
    """Keyword in lower case, and its values. A line that cannot be read has neither."""
    head, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    if not head or head.startswith("#"):
        return "", []
    try:
        return head.lower(), shlex.split(rest, comments=True)
    except ValueError:
        return "", []
