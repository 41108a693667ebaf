"""One thing changed at a time: a deployment or case with one flag, variable or field set to another value.

flags.--chunked-prefill-size   a flag of the server: true is the bare flag, false leaves it out
env.NAME                       a variable of the server's environment: false takes it out
topology.tp, cpus, image ...   another field of the deployment
case.prefix_share, case.isl    a field of the case: the server need not start again
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from runners.spec import Case, ConfigError, Deployment, Inventory
from store.masking import is_secret
from store.records import Attempt

Value = bool | int | float | str
_FLAG = re.compile(r"--?[A-Za-z]")  # a negative number is a value
NOT_VARIED = frozenset({"name", "base", "engine", "nodes", "flags", "env", "url"})  # these are other deployments
NOT_VARIED_CASE = frozenset({"name", "client"})


def with_flag(flags: Sequence[str], flag: str, value: Value) -> list[str]:
    """`flags` with one option set: its old value goes, also when it was written `--x=v`."""
    kept: list[str] = []
    words = list(flags)
    while words:
        word = words.pop(0)
        if word.split("=", 1)[0] != flag:
            kept.append(word)
        elif word == flag and words and not _FLAG.match(words[0]):
            words.pop(0)
    if value is False:
        return kept
    return [*kept, flag] if value is True else [*kept, flag, str(value)]


def changed_deployment(dep: Deployment, vary: str, value: Value) -> Deployment:
    """`dep` with what `vary` names set to `value`; the same object for a field of the case. Raises ConfigError."""
    kind, _, name = vary.partition(".")
    if kind == "case":
        return dep
    if kind == "flags":
        if not name.startswith("-"):
            raise ConfigError(f"vary = {vary!r}: a flag begins with a dash, e.g. flags.--max-running-requests")
        return _checked(dep, {"flags": with_flag(dep.flags, name, value)}, vary)
    if kind == "env":
        if is_secret(name):
            raise ConfigError(f"vary = {vary!r}: a secret is no variable of an experiment")
        rest = {k: v for k, v in dep.env.items() if k != name}
        return _checked(dep, {"env": rest if value is False else {**rest, name: _text(value)}}, vary)
    if kind == "topology":
        return _checked(dep, {"topology": {**dep.topology.model_dump(), name: value}}, vary)
    if vary in NOT_VARIED or vary not in Deployment.model_fields:
        known = sorted(set(Deployment.model_fields) - NOT_VARIED)
        raise ConfigError(f"vary = {vary!r} is no field of a deployment." + _near(vary, known))
    return _checked(dep, {vary: value}, vary)


def changed_case(case: Case, vary: str, value: Value) -> Case:
    """`case` with the field that `vary` (`case.FIELD`) names set; the same for anything else. Raises ConfigError."""
    kind, _, name = vary.partition(".")
    if kind != "case":
        return case
    if name in NOT_VARIED_CASE or name not in Case.model_fields:
        raise ConfigError(f"vary = {vary!r} is no field of a case." + _near(name, sorted(Case.model_fields)))
    try:
        return Case.model_validate({**case.model_dump(), name: value})
    except ValidationError as e:
        raise ConfigError(f"{vary} = {value!r}: {e.errors(include_url=False)[0]['msg']}") from e


def _checked(dep: Deployment, change: dict[str, Any], vary: str) -> Deployment:
    try:
        return Deployment.model_validate({**dep.model_dump(), **change})
    except ValidationError as e:
        raise ConfigError(f"{vary}: {e.errors(include_url=False)[0]['msg']}") from e


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}; flags.--FLAG; env.NAME."


def _text(value: Value) -> str:
    return "1" if value is True else str(value)


def label_of(vary: str, value: Value) -> str:
    """How a step is called behind its case: `--max-running-requests=8`, `prefix_share=0.5`, `overlap=off`."""
    name = vary.partition(".")[2] or vary
    said = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
    return f"{name}={said}"


def variant_of(deployment: str, vary: str | None = None, value: Value | None = None) -> str:
    """What an attempt's row keeps of its variant."""
    return orjson.dumps({"deployment": deployment, **({"vary": vary, "value": value} if vary else {})}).decode()


def deployment_of(inventory: Inventory, attempt: Attempt, default: Deployment) -> Deployment:
    """The deployment that serves this attempt, as the configuration has it now. Raises ConfigError."""
    if attempt.variant is None:
        return default
    said: Mapping[str, Any] = orjson.loads(attempt.variant)
    dep = inventory.deployment(said["deployment"])
    return changed_deployment(dep, said["vary"], said["value"]) if "vary" in said else dep
