"""The vocabulary: one typed record per table row.

A record class names its table; its fields are the table's columns in order. `None` is NULL: not known, never zero.
Columns ending in `_ns` are integer nanoseconds: `wall_ns` since the Unix epoch and `mono_ns` on CLOCK_MONOTONIC, both
as read on the node named in the row. Counters (`*_total`, `*_ticks`, the `*_bytes` of rails) are cumulative as the
source gave them; queries form the deltas. A class with a `key` is state: writing a record replaces the row with the
same key. One without a key is an append-only fact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A row. Subclasses set `table`, and `key` when they are state."""

    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]] = ()


# --- what was asked for, and what became of it -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Record):
    """One execution of a plan, search, profile, check or watch. `state`: planned | running | collecting | done."""

    table: ClassVar[str] = "runs"
    key: ClassVar[tuple[str, ...]] = ("run_id",)
    run_id: str
    kind: str
    deployment: str | None = None
    plan: str | None = None
    state: str = "planned"
    outcome: str | None = None
    detail: str | None = None
    simulated: bool = False
    created_wall_ns: int = 0
    ended_wall_ns: int | None = None
    who: str | None = None
    why: str | None = None
    results_dir: str | None = None
    spec: str | None = None  # JSON: the resolved deployment, cases and options, secrets masked
    clock_node: str | None = None  # the node whose clock is the run clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Life(Record):
    """One start-to-stop of a deployment. `state`: starting | ready | stopping | gone."""

    table: ClassVar[str] = "lives"
    key: ClassVar[tuple[str, ...]] = ("life_id",)
    life_id: str
    run_id: str | None = None
    deployment: str
    state: str = "starting"
    external: bool = False
    simulated: bool = False
    url: str | None = None
    engine: str | None = None
    version: str | None = None
    fingerprint: str | None = None  # hash of the commands it was started with: a changed deployment needs another life
    started_wall_ns: int | None = None
    ready_wall_ns: int | None = None
    ended_wall_ns: int | None = None
    outcome: str | None = None
    detail: str | None = None


BREACHES = frozenset({"TTFT_SLO_EXCEEDED", "TPOT_SLO_EXCEEDED", "SLO_EXCEEDED"})
SERVED = BREACHES | {"OK"}  # outcomes of an attempt that was carried through; a breach of the SLO is still a success


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Record):
    """One repeat of one case in a server life. `state`: planned | running | done | void (cut by us, to be repeated)."""

    table: ClassVar[str] = "attempts"
    key: ClassVar[tuple[str, ...]] = ("attempt_id",)
    attempt_id: str
    run_id: str
    ordinal: int  # order of work in the run
    case_name: str
    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    repeat: int = 1
    client: str = "loadgen"
    life_id: str | None = None
    job_id: str | None = None
    node: str | None = None  # where the load client ran
    state: str = "planned"
    outcome: str | None = None
    detail: str | None = None
    seed: int | None = None
    started_wall_ns: int | None = None
    ended_wall_ns: int | None = None
    flags: list[str] | None = (
        None  # marks on the result: client_saturated, cache_warm, tokens_differ, gate_override ...
    )
    case_spec: str | None = None  # JSON of the case
    variant: str | None = None  # JSON: which deployment, and what differs from it (a step of a sweep, a side of an A/B)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(Record):
    """A phase of an attempt (launch, ready, warmup, ramp, steady, drain, collect), on the clock of `node`."""

    table: ClassVar[str] = "phases"
    key: ClassVar[tuple[str, ...]] = ("attempt_id", "name")
    attempt_id: str
    run_id: str
    name: str
    node: str | None = None
    start_wall_ns: int | None = None
    start_mono_ns: int | None = None
    end_wall_ns: int | None = None
    end_mono_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """One generation as the load client saw it.

    Instants are CLOCK_MONOTONIC of the client's node; token counts come from the server's usage.
    `status`: ok | failed | timed_out | cut. `kind`: load | warmup | filler | inject.
    `chunk_ns[i]` is the arrival of chunk i after `sent_ns`, `chunk_tokens[i]` the tokens it carried.
    """

    table: ClassVar[str] = "requests"
    run_id: str
    attempt_id: str
    request_id: int
    kind: str
    phase: str
    measured: bool
    status: str
    error: str | None = None
    error_text: str | None = None
    http_status: int | None = None
    isl: int | None = None
    osl: int | None = None
    scheduled_ns: int | None = None
    sent_ns: int | None = None
    sent_wall_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    end_ns: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    tokens_per_chunk: str | None = None  # counted (running usage) | assumed (one a chunk)
    chunk_ns: list[int] | None = None
    chunk_tokens: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTick(Record):
    """The load client's own state, once a second."""

    table: ClassVar[str] = "load_ticks"
    run_id: str
    attempt_id: str
    node: str
    wall_ns: int
    mono_ns: int
    in_flight: int
    sent: int
    done: int
    failed: int
    input_tokens: int | None = None  # arrived so far, of all requests
    output_tokens: int | None = None
    loop_lag_ms: float | None = None
    cpu_pct: float | None = None
    saturated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Record):
    """One concurrency (or rate) tried in a search."""

    table: ClassVar[str] = "points"
    key: ClassVar[tuple[str, ...]] = ("run_id", "ordinal")
    run_id: str
    ordinal: int
    concurrency: int | None = None
    request_rate: float | None = None
    outcome: str | None = None
    detail: str | None = None
    repeats: int | None = None
    input_tps: float | None = None
    output_tps: float | None = None
    spread_pct: float | None = None
    within_slo: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Record):
    """One verdict of a preflight check or gate. `status`: pass | warn | fail | unknown | not_applicable."""

    table: ClassVar[str] = "gates"
    run_id: str | None = None
    life_id: str | None = None
    node: str | None = None
    name: str
    status: str
    detail: str | None = None
    fix: str | None = None
    wall_ns: int
    override_why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Record):
    """A command with its audit text, secrets masked. `label`: executed | reproduce | planned."""

    table: ClassVar[str] = "commands"
    key: ClassVar[tuple[str, ...]] = ("command_id",)
    command_id: str
    run_id: str | None = None
    attempt_id: str | None = None
    life_id: str | None = None
    job_id: str | None = None
    node: str | None = None
    purpose: str  # server | bench | probe | check | stop | collect
    label: str = "executed"
    text: str  # one shell line
    cwd: str | None = None
    env: str | None = None  # JSON
    started_wall_ns: int | None = None
    ended_wall_ns: int | None = None
    exit_code: int | None = None


# --- detached jobs and the bytes taken from them ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Record):
    """A detached job on a node. `state`: starting | running | exited | gone (no process and no exit code) | reaped."""

    table: ClassVar[str] = "jobs"
    key: ClassVar[tuple[str, ...]] = ("job_id",)
    job_id: str
    run_id: str | None = None
    life_id: str | None = None
    attempt_id: str | None = None
    node: str
    kind: str  # server | client | probe | profiler | ... : decides which parser reads its streams
    folder: str
    rank: int | None = None
    pid: int | None = None
    start_ticks: int | None = None
    boot_id: str | None = None
    state: str = "starting"
    exit_code: int | None = None
    started_wall_ns: int | None = None
    ended_wall_ns: int | None = None
    ttl_s: int | None = None
    context: str | None = None  # JSON: what the parser of this job needs to know


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset(Record):
    """How many bytes of a job's stream are parsed and committed. Counted from the job's start, across rolled parts."""

    table: ClassVar[str] = "offsets"
    key: ClassVar[tuple[str, ...]] = ("job_id", "stream")
    job_id: str
    stream: str  # stdout | stderr | a file the job writes
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Record):
    """Proof of one committed batch: these bytes of this stream became rows in the same transaction."""

    table: ClassVar[str] = "batches"
    job_id: str
    stream: str
    offset: int
    length: int
    sha256: str
    rows: int
    skipped: int
    wall_ns: int  # the owner's clock at commit


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Record):
    """One line of a job's output. `wall_ns` is the line's own time when it has one, else the arrival in the owner."""

    table: ClassVar[str] = "log_lines"
    run_id: str | None
    job_id: str
    node: str
    rank: int | None = None
    stream: str = "stdout"
    offset: int
    wall_ns: int
    level: str | None = None
    text: str
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent(Record):
    """What a line means: a start-up stage, a fatal error, a transport. `name` is from the list of `read --kinds`."""

    table: ClassVar[str] = "log_events"
    run_id: str | None
    job_id: str
    node: str
    rank: int | None = None
    stream: str = "stdout"
    offset: int
    wall_ns: int
    name: str
    severity: str = "info"  # info | warn | fatal
    detail: str | None = None


# --- samples ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Record):
    """What every sample carries. `source` names the tool or file that gave it."""

    run_id: str | None
    node: str
    wall_ns: int
    mono_ns: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample(Sample):
    table: ClassVar[str] = "gpu_samples"
    gpu: int
    uuid: str | None = None
    name: str | None = None
    util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_used_bytes: int | None = None
    mem_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temp_c: float | None = None
    sm_mhz: float | None = None
    mem_mhz: float | None = None
    pstate: str | None = None
    throttle: str | None = None  # decoded reasons, comma-separated; '' when none is active
    pcie_rx_bps: float | None = None
    pcie_tx_bps: float | None = None
    ecc_errors_total: int | None = None
    pci_bus_id: str | None = None
    mem_used_pct: float | None = None  # of tools that give a share and no bytes
    pcie_gen: int | None = None
    pcie_width: int | None = None
    throttled_us_total: int | None = None  # the largest of the driver's counters: they overlap
    ecc_corrected_total: int | None = None
    sm_active_pct: float | None = None  # this and the next three: DCGM
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    missing: str | None = None  # what the tool could not give, with its words


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSample(Sample):
    """Ticks of one core since boot (/proc/stat, USER_HZ); `cpu` NULL is the sum of all."""

    table: ClassVar[str] = "cpu_samples"
    cpu: int | None = None
    user_ticks: int | None = None
    system_ticks: int | None = None
    idle_ticks: int | None = None
    iowait_ticks: int | None = None
    irq_ticks: int | None = None
    steal_ticks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample(Sample):
    """The node as a whole: load, memory, switches, disk."""

    table: ClassVar[str] = "host_samples"
    load1: float | None = None
    runnable: int | None = None
    threads: int | None = None
    ctx_switches_total: int | None = None
    mem_total_bytes: int | None = None
    mem_available_bytes: int | None = None
    swap_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    probe_cpu_ticks: int | None = None
    blocked: int | None = None
    faults_total: int | None = None
    major_faults_total: int | None = None
    disk_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSample(Sample):
    table: ClassVar[str] = "thread_samples"
    pid: int
    tid: int
    name: str | None = None
    state: str | None = None
    user_ticks: int | None = None
    system_ticks: int | None = None
    minor_faults_total: int | None = None
    major_faults_total: int | None = None
    voluntary_switches_total: int | None = None
    involuntary_switches_total: int | None = None
    last_cpu: int | None = None
    process: str | None = None  # its title
    role: str | None = None  # scheduler | detokenizer | tokenizer | engine core | worker | front end | router | other
    run_ns_total: int | None = None
    wait_ns_total: int | None = None  # runnable, but waiting for a core


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaSample(Sample):
    table: ClassVar[str] = "numa_samples"
    numa: int
    pid: int | None = None  # NULL: the node's own counters
    pages_bytes: int | None = None
    mem_free_bytes: int | None = None
    hit_total: int | None = None
    miss_total: int | None = None
    foreign_total: int | None = None
    process: str | None = None
    cpus: str | None = None  # of the NUMA node, or those that the process may use
    missing: str | None = None  # why pages are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class RailSample(Sample):
    """Counters of one port. `door`: rdma (port counters; RoCE is invisible to the kernel) or netdev (/proc/net/dev)."""

    table: ClassVar[str] = "rail_samples"
    device: str  # mlx5_0 or eth0
    port: int | None = None
    door: str
    state: str | None = None
    rate_gbps: float | None = None
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    rx_packets: int | None = None
    tx_packets: int | None = None
    errors_total: int | None = None
    drops_total: int | None = None
    retransmits_total: int | None = None
    out_of_sequence_total: int | None = None
    cnp_total: int | None = None
    ecn_total: int | None = None
    rx_pause_total: int | None = None
    tx_pause_total: int | None = None
    netdev: str | None = None
    numa: int | None = None
    rx_errors_total: int | None = None
    tx_errors_total: int | None = None
    rx_drops_total: int | None = None
    tx_drops_total: int | None = None
    tx_wait_total: int | None = None
    timeouts_total: int | None = None
    link_downs_total: int | None = None
    cnp_ignored_total: int | None = None
    rx_pause_us_total: int | None = None
    tx_pause_us_total: int | None = None
    pfc: str | None = None  # configured | not configured
    busiest_priority: int | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample(Sample):
    """What an engine says of itself; `source` is metrics or log. Histograms come as sum (seconds) and count."""

    table: ClassVar[str] = "engine_samples"
    life_id: str | None = None
    engine: str | None = None
    dp_rank: int | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None  # share 0..1
    kv_tokens_total: int | None = None  # capacity
    preemptions_total: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    prefix_queries_total: float | None = None
    prefix_hits_total: float | None = None
    requests_total: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    itl_sum_s: float | None = None
    itl_count: float | None = None
    e2e_sum_s: float | None = None
    e2e_count: float | None = None
    queue_sum_s: float | None = None
    queue_count: float | None = None
    spec_drafts_total: float | None = None
    spec_draft_tokens_total: float | None = None
    spec_accepted_tokens_total: float | None = None
    gen_throughput: float | None = None  # tokens/s as the engine's own gauge or log line states it
    kv_used_tokens: float | None = None
    retracted: float | None = None
    computed_tokens_total: float | None = None
    cached_tokens_total: float | None = None
    prefill_sum_s: float | None = None
    prefill_count: float | None = None
    decode_sum_s: float | None = None
    decode_count: float | None = None
    inference_sum_s: float | None = None
    inference_count: float | None = None
    step_tokens_sum: float | None = None
    step_count: float | None = None
    aborted_total: float | None = None
    spec_accept_length: float | None = None  # the engine's own gauge, since its start
    prefix_unit: str | None = None  # tokens | blocks
    missing: str | None = None  # columns that this engine has no metric for


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess(Sample):
    """A process with memory on a GPU. `ours`: the source itself said whose it is; else queries ask the threads."""

    table: ClassVar[str] = "gpu_processes"
    pid: int
    gpu_uuid: str | None = None
    name: str | None = None
    mem_used_bytes: int | None = None
    ours: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRollup(Record):
    """One GPU over one step of 10 or 60 s, for long histories."""

    table: ClassVar[str] = "gpu_rollups"
    key: ClassVar[tuple[str, ...]] = ("run_id", "node", "gpu", "step_s", "wall_ns")
    run_id: str | None
    node: str
    gpu: int
    step_s: int
    wall_ns: int  # start of the step
    n: int
    util_avg: float | None = None
    util_min: float | None = None
    util_max: float | None = None
    mem_used_bytes: int | None = None
    power_avg: float | None = None
    temp_max: float | None = None
    sm_mhz_avg: float | None = None
    sm_mhz_min: float | None = None
    pcie_rx_bps: float | None = None
    pcie_tx_bps: float | None = None
    tensor_pct: float | None = None
    dram_pct: float | None = None
    throttled: int | None = None  # samples with a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RailRollup(Record):
    """One port over one step of 10 or 60 s: rates in GB/s, and what its counters gained."""

    table: ClassVar[str] = "rail_rollups"
    key: ClassVar[tuple[str, ...]] = ("run_id", "node", "device", "port", "door", "step_s", "wall_ns")
    run_id: str | None
    node: str
    device: str
    port: int | None
    door: str
    step_s: int
    wall_ns: int
    n: int
    line_gbs: float | None = None
    tx_gbs: float | None = None
    rx_gbs: float | None = None
    tx_gbs_max: float | None = None
    rx_gbs_max: float | None = None
    errors: int | None = None
    drops: int | None = None
    retransmits: int | None = None
    pauses: int | None = None
    resets: int | None = None


# --- around a run ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact(Record):
    table: ClassVar[str] = "artifacts"
    key: ClassVar[tuple[str, ...]] = ("run_id", "path")
    run_id: str
    path: str  # below results/<RUN_ID>/
    kind: str
    node: str | None = None
    source: str | None = None  # path on the node, or how it was made
    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Record):
    """One fact of the manifest. `source`: asked | reported | measured."""

    table: ClassVar[str] = "variables"
    run_id: str
    life_id: str | None = None
    name: str
    value: str | None = None
    node: str | None = None
    rank: int | None = None
    source: str = "asked"
    wall_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset(Record):
    """Node clock minus owner clock: `offset_ns`, certain to within `error_ns` (half the best round trip)."""

    table: ClassVar[str] = "clock_offsets"
    run_id: str | None = None
    node: str
    wall_ns: int  # the owner's clock when measured
    offset_ns: int
    error_ns: int
    mono_offset_ns: int | None = None  # the same for the monotonic clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState(Record):
    """How we see a node now. `state`: connecting | up | lost | auth_needed | hostkey | gone."""

    table: ClassVar[str] = "node_states"
    key: ClassVar[tuple[str, ...]] = ("node",)
    node: str
    state: str
    detail: str | None = None
    rtt_ms: float | None = None
    boot_id: str | None = None
    wall_ns: int  # the owner's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """What an operator asked the owner for. `state`: accepted | refused | running | done | failed."""

    table: ClassVar[str] = "orders"
    key: ClassVar[tuple[str, ...]] = ("order_id",)
    order_id: str
    wall_ns: int
    who: str
    kind: str
    params: str  # JSON
    state: str
    detail: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    table: ClassVar[str] = "findings"
    key: ClassVar[tuple[str, ...]] = ("finding_id",)
    finding_id: str
    run_id: str | None = None
    rule: str
    severity: str
    node: str | None = None
    title: str
    detail: str | None = None
    numbers: str | None = None  # JSON
    sources: str | None = None
    next_ab: str | None = None
    first_wall_ns: int
    last_wall_ns: int
    count: int = 1
    state: str = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Record):
    table: ClassVar[str] = "notes"
    run_id: str | None = None
    wall_ns: int
    who: str
    text: str


def all_records() -> list[type[Record]]:
    """Every record class that has a table, in the order of this file."""
    return [c for c in globals().values() if isinstance(c, type) and issubclass(c, Record) and "table" in c.__dict__]
