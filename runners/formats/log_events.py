"""Fatal and noteworthy lines of engine logs, typed: what proves which stop reason, what is only an echo or a guess.

Evidence rules: an out-of-memory line proves OOM; a crash text never does. Ray's list of possible causes is no cause.
Retractions and pre-emptions are pressure. Works on one line at a time, without state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from runners.formats.base import Event, Value
from runners.formats.prefix import Prefix
from runners.formats.text import MATCHED, number, shown

OOM: Final = "OOM"
CRASH: Final = "ENGINE_CRASH"
START: Final = "START_FAILED"


@dataclass(frozen=True, slots=True)
class Rule:
    """One recognised line.

    reason  the stop reason that the line proves, None when it proves none
    role    cause, echo (follows from something above), possible (a guess), pressure, note
    sub     refinement: HOST_OOM, hang
    Named groups of the pattern become detail entries (`*_n` groups as whole numbers, without the suffix).
    """

    name: str
    pattern: re.Pattern[str]
    reason: str | None = None
    role: str = "cause"
    sub: str | None = None
    facts: dict[str, Value] = field(default_factory=dict)


def _rule(name: str, pattern: str, reason: str | None = None, role: str = "cause", sub: str | None = None) -> Rule:
    return Rule(name, re.compile(pattern), reason, role, sub)


# First match wins: host memory before device memory, guesses before the words they contain.
RULES: Final = (
    _rule(
        "possible_cause",
        r"A worker died or was killed|There are some potential root causes|killed by SIGKILL by OOM killer due to high",
        role="possible",
    ),
    _rule(
        "oom",
        r"ray\.exceptions\.OutOfMemoryError|NODE_OUT_OF_MEMORY|killed due to (?:memory pressure|the node running low)|"
        r"oom-kill:|oom_reaper: reaped|[Oo]ut of memory: Kill(?:ed)? process (?P<pid_n>\d+)|invoked oom-killer|"
        r"Memory cgroup out of memory",
        OOM,
        sub="HOST_OOM",
    ),
    _rule(
        "oom",
        r"OutOfMemoryError: (?:CUDA|HIP|NPU|XPU|MUSA|Allocation)|"
        r"(?:CUDA|HIP|NPU|XPU) out of memory\. Tried to allocate|"
        r"(?:CUDA|HIP) out of memory occurred|(?:CUDA|HIP) error: out of memory|"
        r"(?:Cuda|CUDA|HIP) failure (?:\d+ )?'out of memory'|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|"
        r"Not enough memory\. Please try to increase --mem-fraction-static|No available memory for the cache blocks|"
        r"Out of memory even after retracting|(?:Prefill|Decode) out of memory\. Try to lower|"
        r"aborted last request .*due to OOM|torch\.(?:cuda\.)?OutOfMemoryError",
        OOM,
    ),
    _rule(
        "watchdog_timeout",
        r"(?:[Ss]cheduler |[Dd]etokenizer |[Tt]okenizer )?[Ww]atchdog timeout \(self\.watchdog_timeout="
        r"(?P<timeout_s_n>\d+)(?:, self\.soft=(?P<soft>True|False))?",
        CRASH,
        sub="hang",
    ),
    _rule(
        "collective_timeout",
        r"Watchdog caught collective operation timeout: \w+\(SeqNum=(?P<seq_n>\d+), OpType=(?P<op>\w+)(?:, NumelIn="
        r"(?P<numel_in_n>\d+), NumelOut=(?P<numel_out_n>\d+))?.*?Timeout\(ms\)=(?P<timeout_ms_n>\d+)"
        r"(?:\) ran for (?P<ran_ms_n>\d+) milliseconds)?",
        CRASH,
        sub="hang",
    ),
    _rule(
        "collective_failure",
        r"failure detected by watchdog at work sequence id: (?P<seq_n>\d+).*?last enqueued work: (?P<enqueued_n>\d+), "
        r"last completed work: (?P<completed_n>\d+)",
        CRASH,
    ),
    _rule(
        "corruption_warning",
        r"might run on corrupted/incomplete data|subsequent GPU operations might run on corrupted",
        role="note",
    ),
    _rule("process_group_down", r"To avoid data inconsistency, we are taking the entire process down", CRASH, "echo"),
    _rule(
        "engine_crash",
        r"watchdog thread terminated with exception: (?P<cause>.+)|terminated with exception: (?P<cause2>.+)",
        CRASH,
    ),
    _rule("engine_start_failed", r"EngineCore failed to start|Engine core initialization failed", START, "echo"),
    _rule("engine_crash", r"EngineCore (?:encountered a fatal error|hit an exception)", CRASH),
    _rule(
        "engine_dead",
        r"EngineDeadError|AsyncLLM output_handler failed|failed \(engine dead\)|Background loop has errored already|"
        r"Engine loop is not running",
        CRASH,
        "echo",
    ),
    _rule(
        "process_died",
        r"[Ww]orker proc (?P<process>\S+) died unexpectedly(?: \(exit code: (?P<exit_code_n>-?\d+)\))?|"
        r"Engine core proc (?P<process2>\S+) died unexpectedly|"
        r"Subprocess (?P<process3>[\w-]+) \(pid=(?P<pid_n>\d+)\) crashed with exit code (?P<exit_code2_n>-?\d+)|"
        r"ray\.exceptions\.(?:ActorDied|RayActor)Error|"
        r"Engine process \(pid \d+\) died|(?:Rank \d+ scheduler|Scheduler process|Child process) (?:is dead|died)",
        CRASH,
    ),
    _rule(
        "engine_crash",
        r"\b(?P<process>Scheduler|TokenizerManager|DetokenizerManager|DataParallelController|TpModelWorker\w*|"
        r"ModelTpServer|WorkerProc|TpWorker\w*) hit an exception",
        CRASH,
    ),
    _rule("process_group_down", r"Received sigquit from a child proces", CRASH, "echo"),
    _rule(
        "cuda_error",
        r"CUDA error: (?P<error>(?!out of memory)[^.\n]{3,120})|CUDA failure \d+: (?P<error2>[^;]{3,120})|"
        r"HIP error: (?P<error3>(?!out of memory)[^.\n]{3,120})",
        CRASH,
    ),
    _rule(
        "nccl_error",
        r"NCCL error in: |NCCL error: |Dist(?:Backend|NetworkStore)Error: |"
        r"nccl(?P<error>RemoteError|SystemError|InternalError|UnhandledCudaError)\b",
        CRASH,
    ),
    _rule("process_died", r"^Killed$|^Segmentation fault|Fatal Python error: (?P<error>.{3,80})", CRASH),
    _rule(
        "process_died",
        r"Signal (?P<signal_n>\d+) \(SIG\w+\) received by PID (?P<pid_n>\d+)|"
        r"failed \(exitcode: (?P<exit_code_n>-?\d+)\)",
        CRASH,
    ),
    _rule(
        "port_in_use",
        r"\[Errno 98\]|EADDRINUSE|error while attempting to bind on address|"
        r"(?i:(?<!bind failed: )address already in use)|Port \d+ is already in use",
        START,
    ),
    _rule(
        "start_refused",
        r"Free memory on device .*is less than desired|is larger than the maximum number of tokens that can be stored|"
        r"larger than the available KV cache memory|unrecognized arguments: |No CUDA GPUs are available|"
        r"NVIDIA driver on your system is too old",
        START,
    ),
    _rule(
        "retract",
        r"Retract requests\. #retracted_reqs: (?P<requests_n>\d+)(?:, #new_tokens_gained: (?P<tokens_gained_n>\d+))?"
        r"(?:, #mamba_num_gained: \d+)?(?:, #new_token_ratio: (?P<ratio_before>[\d.]+) -> (?P<ratio_after>[\d.]+))?|"
        r"decode out of memory happened, #retracted_reqs: (?P<requests2_n>\d+)",
        role="pressure",
    ),
    _rule(
        "preempt",
        r"is preempted by PreemptionMode\.(?P<mode>\w+) mode.*?(?:total_num_cumulative_preemption=(?P<total_n>\d+))?$",
        role="pressure",
    ),
    _rule(
        "shm_broadcast_wait",
        r"No available (?:shared memory broadcast )?block found in (?P<waited_s_n>\d+) second",
        role="note",
    ),
    _rule("request_error", r"Exception in ASGI application|Error in (?:chat )?completion stream", role="note"),
    _rule(
        "exception", r"^(?P<error>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)): (?P<text>.+)", role="note"
    ),
)

NAMES: Final = tuple(dict.fromkeys(rule.name for rule in RULES))

# A cheap look for any word that one of the rules needs, before the rules are tried in turn.
_HINT = re.compile(
    r"[Ee]rror|rrno|[Ff]ail|[Dd]ied|[Kk]ill|[Mm]emory|OOM|xception|atchdog|sigquit|Signal|dead|crash|etract|preempt|"
    r"already in use|EADDR|corrupted|inconsistency|Segmentation|No available|arguments|too old|root causes|"
    r"tokens that can be stored|CUBLAS"
)


_RULE_OF: Final[dict[bytes, Rule]] = {}  # the rule of a text without its digits: a flood is matched once
_MAX_SHAPES: Final = 4096


def event_of(text: str, prefix: Prefix | None = None, time: str | None = None, rank: int | None = None) -> Event | None:
    """The event of one message (prefixes and the logger's own header already taken off), or None."""
    text = text[:MATCHED]
    if _HINT.search(text) is None:
        return None
    shape = text.encode("utf-8", "replace").translate(None, b"0123456789")
    known = _RULE_OF.get(shape)
    if known is not None:
        match = known.pattern.search(text)
        if match is not None:
            return _event(known, match, text, prefix, time, rank)
    for rule in RULES:
        match = rule.pattern.search(text)
        if match is not None:
            if len(_RULE_OF) >= _MAX_SHAPES:
                _RULE_OF.clear()
            _RULE_OF[shape] = rule
            return _event(rule, match, text, prefix, time, rank)
    return None


def _event(
    rule: Rule, match: re.Match[str], text: str, prefix: Prefix | None, time: str | None, rank: int | None
) -> Event:
    detail: dict[str, Value] = {"line": shown(text), "role": rule.role, "reason": rule.reason}
    if rule.sub:
        detail["sub"] = rule.sub
    for name, value in match.groupdict().items():
        if value is not None:
            whole = name.endswith("_n")
            key = name.removesuffix("_n").rstrip("23")
            plain = shown(value, 200)
            detail[key] = int(value[:18]) if whole else (number(plain) if key.startswith("ratio") else plain)
    if rule.name == "watchdog_timeout" and detail.get("soft") == "True":
        detail["role"], detail["reason"] = "note", None
    return located(Event(rule.name, None, rank, time, detail), prefix)


def located(event: Event, prefix: Prefix | None) -> Event:
    """The event with what the prefix knows: node, rank, process, pid, collector's time, repetitions."""
    if prefix is None:
        return event
    event.node = event.node or prefix.node
    event.rank = prefix.rank if event.rank is None else event.rank
    event.time = event.time or prefix.received
    detail = event.detail
    if prefix.role:
        detail["process"] = detail.get("process", prefix.role)
    if prefix.pid is not None:
        detail.setdefault("pid", prefix.pid)
    if prefix.ranks:
        detail["group_ranks"] = prefix.ranks
    if prefix.repeated > 1:
        detail["repeated"] = prefix.repeated
    return event
