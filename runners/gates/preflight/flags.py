"""The operator's flags against the help of the very version that will read them: a typo is named before a long load."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from runners.gates.preflight.base import Scope, Verdict, listed
from store.masking import is_secret

# An option stands at the start of a help line, or in argparse's usage brackets; words within an explanation do not.
_OPTION = re.compile(r"(?:^[ \t]*|[\[,|] ?)(--?[A-Za-z][\w.-]*)", re.MULTILINE)


def known_flags(help_text: str) -> set[str]:
    """Every option that a help text names, with `-` for `_`."""
    return {_plain(m[1]) for m in _OPTION.finditer(help_text)}


def _plain(flag: str) -> str:
    """vLLM takes `_` for `-`, and `--compilation-config.level` for a part of a JSON value."""
    return flag.split("=", 1)[0].split(".", 1)[0].replace("_", "-")


def unknown_flags(flags: Sequence[str], known: set[str]) -> list[str]:
    """Flags that this version does not know. argparse takes an abbreviation that fits one option only."""
    found = []
    for word in flags:
        if not re.match(r"--[A-Za-z]", word):
            continue
        flag = _plain(word)
        if flag in known or sum(k.startswith(flag) for k in known) == 1:
            continue
        if word not in found:
            found.append(word.split("=", 1)[0])
    return found


def flags(scope: Scope) -> Iterable[Verdict]:
    """Asked of the first node only: the image is the same on all, or `image_same` says it is not."""
    if scope.dep is None or not scope.first or scope.dep.engine not in ("sglang", "vllm") or not scope.dep.flags:
        return [Verdict("flags", "not_applicable", "no flags of an engine to look up here")]
    text = scope.seen.help_text
    known = known_flags(text or "")
    if len(known) < 10:
        return [
            Verdict("flags", "unknown", scope.seen.help_why or "the engine's help lists no flags", "try --help there")
        ]
    wrong = unknown_flags(scope.dep.flags, known)
    if not wrong:
        return [Verdict("flags", "pass", f"all flags are among the {len(known)} of this version")]
    near = {w: difflib.get_close_matches(_plain(w), known, n=1) for w in wrong}
    hints = [f"{w}: did you mean {n[0]}?" if n else f"{w}: nothing like it" for w, n in near.items()]
    detail = f"this version's help does not know {listed(wrong)}"
    return [Verdict("flags", "fail", detail, f"correct flags =; {listed(hints)}")]


def secrets(scope: Scope) -> Iterable[Verdict]:
    """Flags whose values are secret: whoever is logged in reads them in the process list."""
    if scope.dep is None or not scope.ours or not scope.first:
        return [Verdict("secrets", "not_applicable", "no flags of ours on this node")]
    # vLLM takes its key from a variable, and gets it so (runners.engines.vllm)
    moved = {"--api-key"} if scope.dep.engine == "vllm" else set()
    names = [w.split("=", 1)[0] for w in scope.dep.flags if w.startswith("--")]
    shown = [n for n in dict.fromkeys(names) if is_secret(n) and n not in moved]
    if shown:
        fix = "give it by env = { ... } or a file where the engine can read one; masked in all that twinrail keeps"
        return [Verdict("secrets", "warn", f"in the node's process list for all to read: {listed(shown)}", fix)]
    return [Verdict("secrets", "pass", "no secret among the flags; variables travel by files of mode 0600")]
