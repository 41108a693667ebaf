"""`watch`: metrics and logs with no run. Order it, tell every few seconds what is seen, print what it came to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, INFRASTRUCTURE, Place, number, out, out_json, print_table, run_async, say, session_of

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory

POLL_S = 1.0
TELL_S = 5.0
RECENT_NS = 12_000_000_000
GIB = 1 << 30
MOST_EVENTS = 20


def run_watch(
    place: Place, deployment: str | None, lasts: str | None, *, as_json: bool, foreground: bool, why: str | None
) -> int:
    """Exit code: 0 watched, 3 no node was reached or the owner is gone. `lasts`: a duration as in the configuration."""
    from runners.spec import ConfigError, seconds

    try:
        span = None if lasts is None else seconds(lasts)
    except ValueError as e:
        raise ConfigError(f"--for: {e}") from e
    if span is not None and not 0 < span <= 24 * 3600:
        raise ConfigError("--for: a watch lasts up to 24h; start another one after it")
    asked = {k: v for k, v in {"deployment": deployment, "seconds": span, "why": why}.items() if v is not None}
    return run_async(_watch(place.inventory(), asked, as_json=as_json, foreground=foreground))


async def _watch(inventory: Inventory, asked: dict[str, Any], *, as_json: bool, foreground: bool) -> int:
    from runners.flows.watch import place_of

    place_of(inventory, asked.get("deployment"))  # bad usage is told before anything is started
    async with session_of(inventory, foreground=foreground) as session:
        run_id = str((await session.order("start_watch", **asked))["run_id"])
        span = f"{asked['seconds']:.0f} s" if "seconds" in asked else "24 h at most"
        say(f"watch {run_id} for {span}: Ctrl-C ends it, `twinrail` shows it live")
        return await follow_watch(session, run_id, as_json=as_json)


async def follow_watch(session: Session, run_id: str, *, as_json: bool) -> int:
    """Until it is over; then its summary. The first Ctrl-C ends the watch, the second leaves it on."""
    from store.errors import OwnerGone

    try:
        await _until_over(session, run_id)
        document = await session.document(run_id)
    except OwnerGone as e:
        say(f"{e}. The probes go on and nothing is lost: `twinrail resume {run_id}` starts a new owner")
        return INFRASTRUCTURE
    if as_json:
        out_json(document)
    else:
        from console.verbs.show import print_document

        print_document(document)
        out(f"results: {session.config.results_path / run_id}")
    return DONE if document["outcome"] == "OK" else INFRASTRUCTURE


async def _until_over(session: Session, run_id: str) -> None:
    from console.verbs.run import _stop, interrupts

    told, stopping, said = time.monotonic(), False, ""
    with interrupts(f"`twinrail resume {run_id}` follows it again") as presses:
        while True:
            if presses.is_set() and not stopping:
                stopping = True
                say("ending: probes are stopped, everything is kept (again: leave now, and it goes on)")
                await _stop(session, run_id)
            state = (await session.rows("run_row", run_id))[0]["state"]
            if state == "done":
                return
            if state == "collecting" != said:
                say("collecting what the probes wrote")
            elif state == "running" and not stopping and time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                for line in await _seen(session, run_id):
                    say(line)
            said = state
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await (asyncio.sleep(POLL_S) if stopping else presses.wait())


async def _seen(session: Session, run_id: str) -> list[str]:
    """A line for each node, one for each server's engine: the newest seconds."""
    now = time.time_ns()
    args = (run_id, now - RECENT_NS, now)
    gpus, rails, engine, logs = [
        await session.rows(name, *args) for name in ("live_gpus", "live_rails", "live_engine", "live_logs")
    ]
    states = {r["node"]: r for r in await session.rows("live_nodes")}
    at = time.strftime("%H:%M:%S")
    names = sorted({n.name for n in session.config.nodes} & {*states})
    lines = [f"{at} {name}: {_node_line(name, states[name], gpus, rails)}" for name in names]
    if engine:
        e = engine[0]
        rates = f"{number(e['generation_tps'])} out tok/s, {number(e['prompt_tps'])} in tok/s"
        queue = f"{number(e['running'], '.0f')} running, {number(e['waiting'], '.0f')} waiting"
        lines.append(f"{at} engine: {queue}, {rates}, KV {_percent(e['kv_usage'])}")
    bad = [r for r in logs if r["severity"] >= 40]
    return lines + [f"{at} {r['node']}: {r['text'][:160]}" for r in bad[-3:]]


def _node_line(name: str, state: Mapping[str, Any], gpus: Sequence[Any], rails: Sequence[Any]) -> str:
    if state["state"] != "up":
        return f"{state['state']}. {state['detail'] or ''}".rstrip()
    parts = []
    if mine := [g for g in gpus if g["node"] == name]:
        known = [g["util_pct"] for g in mine if g["util_pct"] is not None]
        watts = [g["power_w"] for g in mine if g["power_w"] is not None]
        low, high = (f"{pick(known):.0f}" for pick in (min, max)) if known else ("–", "–")
        util = f"{low} %" if low == high else f"{low}-{high} %"
        parts.append(f"{len(mine)} GPUs {util}" + (f" {sum(watts):.0f} W" if watts else ""))
        held = sorted({f"GPU {g['gpu']} {g['throttle']}" for g in mine if g["throttle"]})
        parts += [f"held back: {', '.join(held[:3])}"] if held else []
    for r in (r for r in rails if r["node"] == name and r["door"] == "rdma"):
        parts.append(f"{r['device']} tx {number(r['tx_gbs'], '.2f')} rx {number(r['rx_gbs'], '.2f')} GB/s")
    return ", ".join(parts) or "up, no sample yet"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def print_watch(document: Mapping[str, Any]) -> None:
    """A watch's document for people."""
    if document["hosts"]:
        columns = ["node", "samples", "CPU %", "busiest core", "load", "memory free GiB"]
        print_table(columns, [_host_row(h) for h in document["hosts"]])
    if document["gpus"]:
        print_table(["node", "GPU", "util %", "max", "memory GiB", "W", "°C", "held back by"], _gpu_rows(document))
    rails = [r for r in document["rails"] if r["door"] == "rdma"]
    if rails:
        columns = ["node", "rail", "tx GB/s", "peak", "rx GB/s", "peak", "line", "errors", "retransmits"]
        print_table(columns, [_rail_row(r) for r in rails])
    for e in document["engine"]:
        out(
            f"server {e['life_id']}: running {number(e['running_mean'])} (most {number(e['running_max'], '.0f')}), "
            f"waiting {number(e['waiting_mean'])} (most {number(e['waiting_max'], '.0f')}), "
            f"KV at most {_percent(e['kv_usage_max'])}, {number(e['generation_tps_mean'])} out tok/s, "
            f"{number(e['prompt_tps_mean'])} in tok/s, TTFT {number(e['ttft_mean_ms'])} ms, "
            f"ITL {number(e['itl_mean_ms'])} ms (means)"
        )
    if not document["engine"]:
        out("no server was up: `twinrail up DEPLOYMENT` starts one")
    told = [e for e in document["events"] if e["severity"] != "info"]
    for e in told[:MOST_EVENTS]:
        out(f"{e['severity']} {e['node']} {e['name']} x{e['count']}: {(e['detail'] or '')[:160]}")


def _host_row(h: Mapping[str, Any]) -> list[str]:
    core = "–" if h["core_max"] is None else f"{h['core_max']}: {number(h['core_max_pct'], '.0f')} %"
    free = None if h["mem_available_min_bytes"] is None else h["mem_available_min_bytes"] / GIB
    return [h["node"], str(h["samples"]), number(h["cpu_mean_pct"]), core, number(h["load1_max"]), number(free)]


def _gpu_rows(document: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            g["node"],
            str(g["gpu"]),
            number(g["util_mean_pct"], ".0f"),
            number(g["util_max_pct"], ".0f"),
            number(None if g["mem_used_max_bytes"] is None else g["mem_used_max_bytes"] / GIB),
            number(g["power_mean_w"], ".0f"),
            number(g["temp_max_c"], ".0f"),
            ", ".join(g["throttle"] or []),
        ]
        for g in document["gpus"]
    ]


def _rail_row(r: Mapping[str, Any]) -> list[str]:
    figures = [number(r[k], ".2f") for k in ("tx_mean_gbs", "tx_peak_gbs", "rx_mean_gbs", "rx_peak_gbs")]
    rest = [number(r["line_gbs"], ".0f"), number(r["errors"], "d"), number(r["retransmits"], "d")]
    return [r["node"], r["device"], *figures, *rest]
