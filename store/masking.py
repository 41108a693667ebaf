"""Secrets never reach the store, an export, a log or the screen: one place that masks them.

Masked are values of variables whose names speak of secrets, values after flags that do, credentials in URLs, bearer
headers, and the shapes of well-known tokens. A mask keeps the name and says `***`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"
_WORD = r"(?:token|secret|passw(?:or)?d|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth)"
# "max_tokens", "num-tokens" and "tokenizer" are not secrets: the word must end the name.
_NAME = re.compile(rf"(?:^|[-_.]){_WORD}s?$|^{_WORD}$|[a-z0-9]{_WORD}$", re.IGNORECASE)
_HARMLESS = re.compile(
    r"(?:max|num|min|total|new|prompt|batched|prefill|input|output|draft|stop|eos|bos|pad|unk|completion|chunk|kv|"
    r"verify|special|thinking|reasoning)[-_]*(?:\w+[-_])?tokens?$",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{16,}|"
    r"xox[abpr]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,})"
)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)([^/\s:@'\"]*):([^/\s@'\"]+)@", re.IGNORECASE)
_QUERY = re.compile(rf"([?&][\w.-]*{_WORD}=)([^&\s'\"]+)", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
# name=value and name: value inside a longer text, value quoted or bare
_ASSIGN = re.compile(
    r"""(?P<name>[A-Za-z][\w.-]*)(?P<sep>["']?\s*[=:]\s*)(?P<value>\[[^\]\n]*\]?|\([^)\n]*\)?|"[^"\n]*"?|'[^'\n]*'?|[^\s,;&'"()\[\]{}]+)"""
)
_FLAG = re.compile(r"""(?P<name>--?[A-Za-z][\w.-]*)(?P<sep>\s+)(?P<value>"[^"]*"|'[^']*'|[^\s-][^\s]*)""")

# "#token: 61733" counts, "api_key=None" and "tokens: [1, 2]" hide nothing
_TELLS_NOTHING = re.compile(r"""[\s\d.,\[\]()'"]*|['"]?(?:None|null|true|false|True|False)['"]?|\*{3}""")
_BRACKETS = {"[": ("[", "]"), "(": ("(", ")"), '"': ('"', '"'), "'": ("'", "'")}
_SUSPECT = re.compile(rf"{_WORD}|://|bearer|basic|hf_|sk-|gh[pousr]_|glpat-|xox|AKIA|eyJ", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret (`HF_TOKEN`, `--api-key`; not `--max-tokens`)."""
    bare = name.lstrip("-")
    return bool(_NAME.search(bare)) and not _HARMLESS.search(bare)


def mask_text(text: str) -> str:
    """`text` with the secrets in it replaced; everything else to the letter."""
    if not _SUSPECT.search(text):  # most log lines: one scan and done
        return text
    text = _SHAPES.sub(MASK, text)
    text = _URL.sub(rf"\1\2:{MASK}@", text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _ASSIGN.sub(_hide, text)
    return _FLAG.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    name, sep, value = match.group("name", "sep", "value")
    if not is_secret(name) or _TELLS_NOTHING.fullmatch(value):
        return match.group(0)
    open_, close = _BRACKETS.get(value[0], ("", ""))
    return f"{name}{sep}{open_}{MASK}{close}"


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with secret values masked and secrets inside other values too."""
    return {k: MASK if is_secret(k) and v else mask_text(v) for k, v in env.items()}


def mask_argv(argv: Sequence[str]) -> list[str]:
    """The argument vector with the values of secret flags masked, both `--flag value` and `--flag=value`."""
    out: list[str] = []
    hide_next = False
    for arg in argv:
        if hide_next:
            out.append(MASK)
            hide_next = False
            continue
        name, eq, _ = arg.partition("=")
        if eq and is_secret(name):
            out.append(f"{name}={MASK}")
        else:
            hide_next = arg.startswith("-") and not eq and is_secret(arg)
            out.append(mask_text(arg))
    return out
