"""A day of a run at one sample a second, and the seconds that follow: what console_cost.py shows."""

from __future__ import annotations

from store.database import Store
from store.records import EngineSample, GpuSample, LoadTick, LogLine, RailSample, Record
from tests.screens import scene
from tests.screens.samples import NOW, OFFSETS, RUN, S

ATTEMPT = f"{RUN}-2"
MONO = 10**15


def fill(store: Store, hours: float, now: int) -> None:
    """History as one SELECT a table: what a day of a run leaves."""
    scene.write_all(store, scene.frame())
    shift = now - NOW
    n = int(hours * 3600)
    c = store.connection.cursor()
    for table, columns in {
        "runs": ("created_wall_ns",),
        "attempts": ("started_wall_ns",),
        "phases": ("start_wall_ns", "end_wall_ns"),
        "node_states": ("wall_ns",),
        "clock_offsets": ("wall_ns",),
        "lives": ("started_wall_ns", "ready_wall_ns"),
    }.items():
        c.execute(f"UPDATE {table} SET " + ", ".join(f"{k} = {k} + {shift}" for k in columns))
    seconds = f"range({n}) t(s), (VALUES ('node5'), ('node7')) nodes(node)"
    wall = f"'{RUN}' AS run_id, {now} - ({n} - s) * {S} AS wall_ns"
    mono = f"{MONO} - ({n} - s) * {S} AS mono_ns"
    gib = "* 2^30::BIGINT"
    c.execute(f"""INSERT INTO gpu_samples BY NAME
        SELECT {wall}, node, 'nvidia-smi' AS source, g AS gpu, 90 + 9 * random() AS util_pct,
               88 {gib} AS mem_used_bytes,
               96 {gib} AS mem_total_bytes, 400 + 50 * random() AS power_w, 600.0 AS power_limit_w,
               60 + 5 * random() AS temp_c, 2430.0 AS sm_mhz, '' AS throttle
        FROM {seconds}, range(8) gpus(g) ORDER BY s""")
    c.execute(f"""INSERT INTO rail_samples BY NAME
        SELECT {wall}, {mono}, node, device, 1 AS port, 'rdma' AS door, 'ACTIVE' AS state, 400.0 AS rate_gbps,
               (s * 11e9)::BIGINT AS tx_bytes, (s * 11e9)::BIGINT AS rx_bytes, 0 AS errors_total, 0 AS drops_total
        FROM {seconds}, (VALUES ('mlx5_0'), ('mlx5_3')) d(device) ORDER BY s""")
    c.execute(f"""INSERT INTO engine_samples BY NAME
        SELECT {wall}, 'node5' AS node, 'metrics' AS source, 32.0 AS running, 0.0 AS waiting, 0.6 AS kv_usage,
               s * 750.0 AS prompt_tokens_total, s * 776.0 AS generation_tokens_total
        FROM range({n}) t(s)""")
    c.execute(f"""INSERT INTO load_ticks BY NAME
        SELECT {wall}, {mono}, '{ATTEMPT}' AS attempt_id, 'node5' AS node, 32 AS in_flight, s AS sent, s AS done,
               0 AS failed, s * 750 AS output_tokens, false AS saturated
        FROM range({n}) t(s)""")
    c.execute(f"""INSERT INTO log_lines BY NAME
        SELECT {wall}, 'job-server-' || node AS job_id, node, 'stdout' AS stream, s * 100 AS "offset", 'INFO' AS level,
               false AS truncated, 'Decode batch, #running-req: 32, #token: ' || s AS text
        FROM {seconds} ORDER BY s""")
    c.execute(f"""INSERT INTO requests BY NAME
        SELECT '{RUN}' AS run_id, '{ATTEMPT}' AS attempt_id, i AS request_id, 'load' AS kind, 'steady' AS phase,
               true AS measured, 'ok' AS status, {MONO} - (1000 - i) * {S} AS sent_ns,
               {now} - (1000 - i) * {S} AS sent_wall_ns, sent_ns + 800000000 AS first_ns,
               sent_ns + 42000000000 AS last_ns, last_ns + 1000 AS end_ns, 1024 AS prompt_tokens, 1024 AS output_tokens,
               list_transform(range(1024), lambda k: 800000000 + k * 40273437 + (random() * 1e6)::BIGINT) AS chunk_ns
        FROM range(1000) t(i)""")
    c.execute("CHECKPOINT")


def one_second(second: int, now: int) -> list[Record]:
    """What one second of a run adds; `second` counts from the start."""
    rows: list[Record] = []
    for node, offset in OFFSETS.items():
        wall = now + offset
        rows += [
            GpuSample(
                run_id=RUN,
                node=node,
                wall_ns=wall,
                gpu=g,
                util_pct=90.0 + (second * 7 + g) % 10,
                mem_used_bytes=88 * 2**30,
                mem_total_bytes=96 * 2**30,
                power_w=400.0 + (second * 13 + g) % 50,
                power_limit_w=600.0,
                temp_c=60.0 + (second + g) % 5,
                sm_mhz=2430.0,
                throttle="",
            )
            for g in range(8)
        ]
        moved = int((10**6 + second) * 11e9 + (second % 3) * 1e9)
        rows += [
            RailSample(
                run_id=RUN,
                node=node,
                wall_ns=wall,
                mono_ns=MONO + second * S,
                device=device,
                port=1,
                door="rdma",
                state="ACTIVE",
                rate_gbps=400.0,
                tx_bytes=moved,
                rx_bytes=moved,
                errors_total=0,
                drops_total=0,
            )
            for device in ("mlx5_0", "mlx5_3")
        ]
        rows += [log_line(node, 10**9 + second * 100 + i, wall, f"Decode batch, line {i}") for i in range(10)]
    total = float(10**8 + second * 776 + (second % 4) * 30)
    rows.append(
        EngineSample(
            run_id=RUN,
            node="node5",
            wall_ns=now,
            source="metrics",
            running=32.0,
            waiting=float(second % 3),
            kv_usage=0.6,
            prompt_tokens_total=total,
            generation_tokens_total=total,
        )
    )
    rows.append(
        LoadTick(
            run_id=RUN,
            attempt_id=ATTEMPT,
            node="node5",
            wall_ns=now,
            mono_ns=MONO + second * S,
            in_flight=32,
            sent=second,
            done=second,
            failed=0,
            output_tokens=10**8 + second * 760 + (second % 5) * 20,
        )
    )
    return rows


def flood(second: int, now: int, lines: int) -> list[Record]:
    """So many log lines within one second."""
    padding = "x" * 80
    return [
        log_line("node5", 10**12 + second * lines + i, now + i, f"flood {second} {i} {padding}") for i in range(lines)
    ]


def log_line(node: str, offset: int, wall_ns: int, text: str) -> LogLine:
    job = f"job-server-{node}"
    return LogLine(run_id=RUN, job_id=job, node=node, offset=offset, wall_ns=wall_ns, level="INFO", text=text)
