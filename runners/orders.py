"""What a watcher may ask of the owner. Orders come as JSON text from anywhere and are checked as hostile input."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runners.flows.vary import Vary
from runners.spec import NAME

MAX_ORDER_BYTES = 64 * 1024
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
ShortName = Annotated[str, Field(pattern=NAME)]
Words = Annotated[str, Field(max_length=4000)]


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    who: Annotated[str, Field(max_length=100)] = "unknown"


class StartRun(_Order):
    kind: Literal["start_run"]
    what: Annotated[list[ShortName], Field(min_length=1, max_length=100)]
    deployment: ShortName | None = None
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None
    scale: Annotated[float, Field(gt=0, le=1)] | None = None  # of every length in tokens
    keep: bool = False  # leave the server up afterwards
    why: Words | None = None  # why that should matter to what holds the results back now
    changes: Words | None = None  # what differs from what was measured before
    expects: Words | None = None  # the effect that is expected
    vary: Vary | None = None
    gate_override: Words | None = None  # words that say why a refusing RDMA gate may be passed


class StartSearch(_Order):
    """What is left out is as the case's [searches] table says, else as the design's defaults."""

    kind: Literal["start_search"]
    what: ShortName
    deployment: ShortName | None = None
    step: Annotated[int, Field(ge=1, le=65536)] | None = None
    refine: Annotated[int, Field(ge=1, le=65536)] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=65536)] | None = None
    repeats: Annotated[int, Field(ge=1, le=100)] | None = None
    stop_at_slo: bool | None = None
    stop_at_preemption: bool | None = None
    max_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    step_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    refine_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    keep: bool = False
    why: Words | None = None
    changes: Words | None = None
    expects: Words | None = None
    vary: Vary | None = None
    gate_override: Words | None = None


class ContinueSearch(_Order):
    """A finished search goes on: finer, further, or with one load measured again. What is left out stays as it was."""

    kind: Literal["continue_search"]
    run_id: RunId
    refine: Annotated[int, Field(ge=1, le=65536)] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=65536)] | None = None
    max_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    repeats: Annotated[int, Field(ge=1, le=100)] | None = None
    again: Annotated[float, Field(gt=0)] | None = None  # a concurrency or rate that was tried
    keep: bool = False


class StartAb(_Order):
    """Two deployments, or two values of one variable on one deployment, in blocks."""

    kind: Literal["start_ab"]
    what: Annotated[list[ShortName], Field(min_length=1, max_length=20)]
    a: Annotated[str, Field(min_length=1, max_length=200)]
    b: Annotated[str, Field(min_length=1, max_length=200)]
    vary_one: Annotated[str, Field(max_length=200)] | None = None  # flags.--X, env.X, case.X ... (flows/variants.py)
    deployment: ShortName | None = None
    blocks: Annotated[int, Field(ge=1, le=400)] = 6
    primary: ShortName | None = None
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    declared: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=50)] = []
    keep: bool = False
    why: Words | None = None
    changes: Words | None = None
    expects: Words | None = None
    gate_override: Words | None = None


class StopRun(_Order):
    kind: Literal["stop_run"]
    run_id: RunId


class PauseRun(_Order):
    """No new attempt begins until the run is resumed; the one that is on goes on. Kept over a restart of the owner."""

    kind: Literal["pause_run"]
    run_id: RunId


class SkipAttempt(_Order):
    """An attempt that is on ends CANCELLED, one that is planned never begins; the run goes on."""

    kind: Literal["skip_attempt"]
    run_id: RunId
    attempt_id: RunId


class RetryAttempt(_Order):
    """A done attempt is measured again as a new one at the end of its run; the old one stays."""

    kind: Literal["retry_attempt"]
    run_id: RunId
    attempt_id: RunId


class Up(_Order):
    kind: Literal["up"]
    deployment: ShortName


class Check(_Order):
    """Preflight of the nodes of a deployment; of all nodes when there is no telling which is meant."""

    kind: Literal["check"]
    deployment: ShortName | None = None
    full: bool = False  # whole model files


class Down(_Order):
    kind: Literal["down"]
    deployment: ShortName


class Restart(_Order):
    """A new server life of a deployment, up or not."""

    kind: Literal["restart"]
    deployment: ShortName


class StartWatch(_Order):
    """Metrics and logs with no run: of one deployment's nodes and server, or of all nodes and whatever is up."""

    kind: Literal["start_watch"]
    deployment: ShortName | None = None
    seconds: Annotated[float, Field(gt=0, le=24 * 3600)] = 24 * 3600.0
    why: Words | None = None


class AddNote(_Order):
    kind: Literal["note"]
    run_id: RunId | None = None
    text: Words


class Export(_Order):
    """The results tree of a run anew, complete with rows and checksums; `to`: a copy in that folder too."""

    kind: Literal["export"]
    run_id: RunId
    to: Annotated[str, Field(max_length=4096)] | None = None


class ImportTree(_Order):
    """A results tree of another machine; `force`: also one that has changed since it was exported."""

    kind: Literal["import_tree"]
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    force: bool = False


class Resume(_Order):
    """Unfinished runs go on, after a crash or a pause: the one that is named, else all."""

    kind: Literal["resume"]
    run_id: RunId | None = None


class StopOwner(_Order):
    kind: Literal["stop_owner"]


AnyOrder = (
    StartRun
    | StartSearch
    | ContinueSearch
    | StartAb
    | StopRun
    | PauseRun
    | SkipAttempt
    | RetryAttempt
    | Check
    | Up
    | Down
    | Restart
    | StartWatch
    | AddNote
    | Export
    | ImportTree
    | Resume
    | StopOwner
)
_ADAPTER: TypeAdapter[AnyOrder] = TypeAdapter(Annotated[AnyOrder, Field(discriminator="kind")])


class OrderError(Exception):
    """The order cannot be carried out; the text says why and what to do."""


def parse_order(text: str, role: str) -> AnyOrder:
    """The order in a JSON text that came with a token of this role (read | order). Raises OrderError."""
    if role != "order":
        raise OrderError("this token may read, not order")
    if len(text) > MAX_ORDER_BYTES:
        raise OrderError(f"the order is longer than {MAX_ORDER_BYTES} characters")
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"])
        raise OrderError(f"not an order that this owner knows: {where}: {first['msg']}") from e
