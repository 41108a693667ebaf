"""Text that leaves the store for a shell or a terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from store.masking import mask_argv, mask_env

# C0 and C1 controls, and the bidirectional overrides that make text read otherwise than it is
_HOSTILE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def shell_line(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """One line that a shell reads back as this command, secrets masked."""
    head = [f"{k}={shlex.quote(v)}" for k, v in sorted(mask_env(env or {}).items())]
    return " ".join([*head, *(shlex.quote(a) for a in mask_argv(argv))])


def plain(text: str) -> str:
    """`text` with control characters and direction tricks shown as `?`: safe for a terminal. Tabs become a blank."""
    return _HOSTILE.sub("?", text).replace("\t", " ").replace("\n", " ")
