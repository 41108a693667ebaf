"""Engine: what the server says of itself over time: load, KV, tokens, queue and service time, pre-emptions."""

from __future__ import annotations

from textual.app import ComposeResult

from screens.data import Row
from screens.history import History, HistoryScreen, Window
from screens.live_data import S
from screens.widgets.bars import TextPanel
from screens.widgets.chart import Chart
from screens.widgets.text import Line, clean, line, num

CHARTS = ("engine-tokens", "engine-load", "engine-kv", "engine-time")


class EngineScreen(HistoryScreen):
    PLACE = "engine"
    KEY = "g e"
    ABOUT = "engine: running, waiting, KV, tokens, queue and service time; history"
    by_node = False

    def body(self) -> ComposeResult:
        yield TextPanel("engine", empty="the engine has not reported in this window", ident="engine-now")
        titles = ("tok/s", "requests", "KV % and pre-emptions a step", "queue and service ms a request")
        for ident, title in zip(CHARTS, titles, strict=True):
            yield Chart(title, empty="no scrape of /metrics in this window", ident=ident)

    async def ask(self, window: Window, node: str | None) -> dict[str, list[Row]]:
        run, t0, t1, step = window.run_id, window.t0, window.t1, window.step_s
        history = await self.feed.rows("engine_history", run, t0, t1, step, *window.clocks)
        now = await self.feed.rows("live_engine", run, t1 - 60 * S, t1, *window.clocks)
        shares = await self.feed.rows("engine_shares", run, tables=("engine_samples", "phases"), every=10)
        lacks = await self.feed.rows("engine_lacks", run, tables=("engine_samples",), every=10)
        memory = await self.feed.rows("engine_memory", run, tables=("log_events",), every=10)
        return {"history": history, "now": now, "shares": shares, "lacks": lacks, "memory": memory}

    def apply(self, snapshot: History) -> None:
        rows, window = snapshot.rows, snapshot.window
        self.query_one("#engine-now", TextPanel).show(tuple(engine_lines(rows)))
        plots = {
            "engine-tokens": (("decode", "one", "generation_tps"), ("prefill", "two", "prompt_tps")),
            "engine-load": (("running", "one", "running"), ("waiting", "two", "waiting")),
            "engine-kv": (("KV %", "one", "kv_pct"), ("pre-empted", "two", "preempted")),
            "engine-time": (("queue", "one", "queue_ms"), ("service", "two", "service_ms")),
        }
        for ident, curves in plots.items():
            self.query_one(f"#{ident}", Chart).show(window.plot(rows["history"], curves))

    def place_panels(self, width: int, height: int) -> None:
        snap: History | None = self.snapshot
        lines = 1 + max(len(engine_lines(snap.rows)) if snap else 1, 1)
        self.height_of(self.query_one("#engine-now"), min(lines, max(height // 2, 3)))
        self.charts_in(CHARTS, height - min(lines, max(height // 2, 3)))


def engine_lines(rows: dict[str, list[Row]]) -> list[Line]:
    out: list[Line] = []
    now = rows["now"][0] if rows["now"] else None
    if now is not None:
        kv = None if now["kv_usage"] is None else 100 * now["kv_usage"]
        hits = None if now["prefix_hit_share"] is None else 100 * now["prefix_hit_share"]
        out.append(
            line(
                ("now       ", "dim"),
                f"running {num(now['running'])}  waiting {num(now['waiting'])}  KV {num(kv, 1)} %  "
                f"prefix hits {num(hits, 1)} %  decode {num(now['generation_tps'])} tok/s  "
                f"prefill {num(now['prompt_tps'])} tok/s",
                ("  old" if now["stale"] else "", "warn"),
            )
        )
    for r in rows["memory"]:
        if r["weights_bytes"] is not None or r["kv_bytes"] is not None:
            parts = ("weights", "kv", "graph", "other", "used", "total")
            said = "  ".join(f"{part} {_gib(r[f'{part}_bytes'])}" for part in parts)
            out.append(line((f"{clean(r['node'], 9):<10}", "dim"), f"GiB of the fullest rank: {said}"))
    for r in rows["shares"][-4:]:
        marks = ("" if r["bracketed"] else "  not bracketed", "warn"), ("  reset" if r["reset"] else "", "warn")
        out.append(
            line(
                (f"{clean(r['attempt_id'].rpartition('.')[2] or r['attempt_id'], 9):<10}", "dim"),
                f"queue {num(r['queue_ms'], 1)}  service {num(r['service_ms'], 1)} ms  "
                f"KV max {num(r['kv_max_pct'], 1)} %  "
                f"pre-empted {num(r['preemptions'])}  recomputed {num(r['recomputed_tokens'])}  "
                f"accept {num(r['accept_pct'], 1)} %  length {num(r['accept_length'], 2)}  "
                f"tokens/step {num(r['tokens_per_step'], 1)}",
                *marks,
            )
        )
    if rows["lacks"] and rows["lacks"][0]["missing"]:
        out.append(line((f"no metric for: {clean(rows['lacks'][0]['missing'], 400)}", "dim")))
    return out


def _gib(value: int | None) -> str:
    return num(None if value is None else value / 2**30, 1)
