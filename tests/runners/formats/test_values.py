"""Values of real samples, tool by tool: the right number in the right unit, null where the tool did not tell."""

from __future__ import annotations

from typing import Any

import pytest

from runners.formats import incidents, nvidia_smi, proc
from runners.formats.base import Event, Skip, collect
from runners.formats.kernel_log import KernelLog
from runners.formats.vllm_log import parse_line as vllm_line
from tests.runners.formats.samples import parsed

GIB = 1024**3
MIB = 1024**2


def first(name: str) -> dict[str, Any]:
    return parsed(name).rows[0]


def events(name: str) -> list[Event]:
    return incidents.fold(parsed(name).events)


class TestNvidiaSmi:
    def test_all_fields_with_units(self) -> None:
        row = first("nvidia-smi/query-gpu-allfields-units-h200-load.csv")
        assert row["util_pct"] == 100
        assert row["power_w"] == 627.4
        assert row["mem_used_bytes"] == 32362 * MIB
        assert row["temp_c"] == 52
        assert row["mem_temp_c"] == 40
        assert row["sm_clock_mhz"] == 1980
        assert row["throttle_mask"] == 0
        assert row["throttle_reasons"] == []
        assert row["fan_pct"] is None
        assert row["missing"]["fan_pct"] == "N/A"
        assert row["extra"]["utilization_encoder_pct"] == 0
        assert row["extra"]["platform_peer_type"] == "Direct Connected"
        assert row["extra"]["platform_chassis_serial_number"] is None

    def test_nounits_keeps_the_unit_in_the_header(self) -> None:
        row = first("nvidia-smi/csv-header-nounits-unknown-error.csv")
        assert row["power_w"] == 228.82
        assert row["power_default_limit_w"] is None
        assert row["missing"]["power_default_limit_w"] == "Unknown Error"

    def test_a_field_list_names_the_columns_of_noheader_output(self) -> None:
        fields = ["memory.total", "memory.free", "memory.used", "temperature.gpu", "fan.speed", "utilization.gpu"]
        (row,) = nvidia_smi.parse_csv("2004, 2004, 0, 44, [N/A], 0\n", fields).rows
        assert row["mem_total_bytes"] == 2004 * MIB
        assert row["mem_used_bytes"] == 0
        assert row["fan_pct"] is None

    def test_a_decimal_comma_fails_the_row_and_shifts_nothing(self) -> None:
        text = "index, power.draw [W], pstate\n0, 62,5 W, P0\n1, 63.5 W, P0\n"
        result = nvidia_smi.parse_csv(text)
        assert [row["index"] for row in result.rows] == [1]
        assert result.skipped == 1

    def test_throttle_bits(self) -> None:
        text = "index, clocks_throttle_reasons.active\n3, 0x0000000000000045\n"
        (row,) = nvidia_smi.parse_csv(text).rows
        assert row["throttle_mask"] == 0x45
        assert row["throttle_reasons"] == ["sw_power_cap", "hw_thermal_slowdown"]

    def test_a_lost_gpu_leaves_the_others(self) -> None:
        text = (
            "index, uuid, utilization.gpu [%]\n0, GPU-a, 5 %\n"
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover"
            " this GPU\n2, GPU-c, [GPU is lost]\n"
        )
        result = nvidia_smi.parse_csv(text)
        assert [(row["index"], row["util_pct"]) for row in result.rows] == [(0, 5), (2, None)]
        assert [(event.name, event.detail["pci_bus_id"]) for event in result.events] == [("gpu_lost", "0000:02:00.0")]

    def test_a_process_name_with_commas(self) -> None:
        text = "pid, process_name, used_gpu_memory [MiB]\n7, python -c a,b, 12 MiB\n"
        assert nvidia_smi.parse_csv(text).rows[0]["process_name"] == "python -c a, b"

    def test_table_list_topology_xml(self) -> None:
        gpu, *processes = parsed("nvidia-smi/table-h200-load.txt").rows
        assert (gpu["power_w"], gpu["util_pct"], gpu["mem_used_bytes"]) == (628, 100, 32362 * MIB)
        assert [item["pid"] for item in processes] == [10291, 10293, 10309]
        mig = parsed("nvidia-smi/list-L-h200mig.txt").rows
        assert mig[0]["mig_uuid"] is None
        assert mig[2]["mig_profile"] == "2c.3g.71gb"
        topo = {row["device"]: row for row in parsed("nvidia-smi/topo-4gpu-nicnames-a100.txt").rows}
        assert topo["GPU1"]["best_nics"] == ["mlx5_0"]
        assert topo["GPU0"]["best_nic_link"] == "SYS"
        assert topo["GPU2"]["cpu_affinity"] == "48-63,112-127"
        assert parsed("nvidia-smi/topo-p2p-rw-gns.txt").rows[0]["links"]["GPU1"] == "GNS"
        xml = first("nvidia-smi/q-x-a100-sxm4-v12.xml")
        assert xml["mem_used_bytes"] == 50 * MIB
        assert xml["mig_mode"] == "Enabled"

    def test_dmon_and_pmon(self) -> None:
        assert first("nvidia-smi/dmon-h200mig-load.txt")["sm_pct"] is None
        assert first("nvidia-smi/dmon-h200mig-load.txt")["power_w"] == 295
        assert first("nvidia-smi/pmon-h200-idle.txt")["pid"] is None
        assert parsed("nvidia-smi/pmon-g2080-load.txt").rows[2]["sm_pct"] == 3


def test_other_accelerators() -> None:
    assert first("hy-smi/bw-dtk2604-float-percent.txt")["util_pct"] == 0.0
    assert first("hy-smi/k100-8card-busy-manual.txt") == {
        "index": 0, "temp_c": 67.0, "power_w": 8.0, "perf_level": "manual", "power_limit_w": 600.0,
        "mem_used_pct": 87, "util_pct": 74, "mode": "Normal",
    }  # fmt: skip
    old = first("rocm-smi/vega-20-WKS-GL-XE.json")
    assert (old["power_w"], old["mem_used_pct"], old["sm_clock_mhz"]) == (26.0, 0, 1725)
    new = first("rocm-smi/rx6700xt_rocm612.json")
    assert (new["mem_used_pct"], new["mem_used_bytes"], new["unique_id"]) == (12, 1572745216, None)
    amd = first("amd-smi/metric-rdna4-text.txt")
    assert (amd["util_pct"], amd["power_w"], amd["sm_clock_mhz"], amd["temp_c"]) == (0, 20, 14, None)
    assert len(amd["extra"]["usage.jpeg_activity"]) == 32
    first_row, na, _ = parsed("dcgmi/dmon-mixed-units-na-first.txt").rows
    assert (first_row["sm_active_ratio"], first_row["power_w"]) == (0.912, 612.4)
    assert (na["sm_active_ratio"], na["power_w"], na["missing"]["sm_active_ratio"]) == (None, 610.0, "N/A")


def test_amd_smi_json() -> None:
    from runners.formats.amd import parse_amd

    text = '[{"gpu": 1, "usage": {"gfx_activity": {"value": 97, "unit": "%"}}, "power": {"socket_power": "N/A"},'
    text += '"mem_usage": {"used_vram": {"value": 1024, "unit": "MB"}}}]'
    (row,) = collect(parse_amd(["WARNING: something", text])).rows
    assert (row["index"], row["util_pct"], row["power_w"], row["mem_used_bytes"]) == (1, 97, None, GIB)


def test_kernel_log() -> None:
    xids = [(event.detail["xid"], event.detail["pid"], event.detail["process"])
            for event in parsed("dmesg/xid-variants.txt").events]  # fmt: skip
    assert xids == [
        (79, None, None), (14, None, None), (94, None, None), (64, None, None), (74, 1234, "python3"),
        (145, 876766, "ray::WorkerDict"), (149, None, None), (154, None, None),
    ]  # fmt: skip
    gsp = parsed("dmesg/xid-119-gsp-timeout.txt").events[0]
    assert (gsp.time, gsp.detail["pci_bus_id"]) == ("Sun Feb 23 16:24:18 2025", "0000:9b:00")
    fault = parsed("dmesg/nccl-segfault.txt").events[0]
    assert (fault.name, fault.detail["library"], fault.detail["pid"]) == ("segfault", "libnccl.so.2", 2536443)
    link = parsed("dmesg/mlx5-link-and-workqueue.txt").events
    assert [(event.node, event.detail["device"], event.detail["state"]) for event in link] == [
        ("gpu-1", "mlx5_5", "INIT"), ("gpu-1", "mlx5_5", "ACTIVE"),
    ]  # fmt: skip


def test_a_lost_gpu_without_an_xid_over_three_lines() -> None:
    log = KernelLog()
    lines = [
        "[ 100.000001] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:2330) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    ]
    found = [event for event in map(log.feed, lines) if event]
    assert [(event.name, event.detail["pci_bus_id"]) for event in found] == [("gpu_lost", "0000:b3:00.0")]


def test_oom_killer_lines() -> None:
    text = "[  9.1] Out of memory: Killed process 812 (python3) total-vm:9kB, anon-rss:1048576kB, file-rss:0kB"
    event = KernelLog().feed(text)
    assert event is not None
    assert (event.name, event.detail["pid"], event.detail["sub"]) == ("oom_kill", 812, "HOST_OOM")
    assert (
        KernelLog().feed("6,3973,227996636,-;NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.") is not None
    )


class TestHost:
    def test_twelve_hour_clock(self) -> None:
        assert first("sar/n-dev-12h-am.txt")["time"] == "00:16:49"
        assert first("mpstat/a-12h-ampm.txt")["time"] == "15:15:06"
        assert first("sar/n-dev-12h-am.txt")["rx_kb_per_s"] == 20686.42

    def test_averages_are_no_samples(self) -> None:
        rows = parsed("sar/n-dev-edev-24h.txt").rows
        assert all(row["time"] for row in rows)
        assert [row["time"] for row in rows if row.get("netdev") == "lo"][:4] == [
            "13:20:19", "13:20:29", "13:20:39", "13:20:49",
        ]  # fmt: skip

    def test_a_process_that_is_gone_has_no_row(self) -> None:
        assert parsed("pidstat/p-unknown-pid.txt").rows == []

    def test_threads(self) -> None:
        rows = parsed("pidstat/t-G-intervals.txt").rows
        thread = next(row for row in rows if row["command"] == "ImgDecoder #1")
        assert (thread["tid"], thread["tgid"], thread["thread"], thread["wait_pct"]) == (8835, None, True, 0.0)
        assert "wait_pct" not in first("pidstat/hl-el7.txt")

    def test_mpstat_json_that_was_interrupted(self) -> None:
        from runners.formats.sysstat import parse_mpstat

        text = '{"sysstat": {"hosts": [{"nodename": "a", "date": "d", "statistics": [{"timestamp": "1", "cpu-load": ['
        text += '{"cpu": "all", "usr": 2.5, "idle": 97.5}]}, {"timestamp": "2", "cpu-load": [{"cpu": "all", "us'
        (row,) = collect(parse_mpstat([text])).rows
        assert (row["cpu"], row["usr_pct"], row["time"]) == ("all", 2.5, "1")

    def test_numastat(self) -> None:
        rows = parsed("numastat/p-2node.txt").rows
        assert rows[-1] == {"pid": 6295, "command": "ddr_dotproduct", "kind": "total",
                            "node_bytes": {"0": 545260, "1": 62915}, "total_bytes": 608174}  # fmt: skip
        assert [row["pid"] for row in parsed("numastat/c-several-pids.txt").rows] == [24463, 24479, 70718]

    def test_proc_files(self) -> None:
        stat = collect(
            proc.parse_stat(["cpu  10 2 3 400 5 0 1 0 0 0", "cpu0 10 2 3 400", "btime 7", "ctxt 9", "cpu1 x"])
        )
        assert stat.rows[0]["idle_jiffies"] == 400
        assert stat.rows[1]["iowait_jiffies"] is None
        assert stat.rows[-1]["boot_time_s"] == 7
        assert stat.skipped == 1
        memory = collect(proc.parse_meminfo(["MemTotal:       16 kB", "HugePages_Total:       3"])).rows[0]
        assert (memory["mem_total_bytes"], memory["hugepages_total"], memory["mem_available_bytes"]) == (16384, 3, None)
        pid = collect(proc.parse_pid_stat(["7 (a b) c) S 1 7 7 0 -1 4 5 0 6 0 8 9 0 0 20 0 3 0 99 4096 17 1"])).rows[0]
        assert (pid["comm"], pid["state"], pid["user_jiffies"], pid["rss_pages"]) == ("a b) c", "S", 8, 17)


class TestRails:
    def test_port_data_counts_words_of_four_bytes(self) -> None:
        row = first("sysfs/infiniband-h100-mlx5_0.txt")
        assert row["rcv_bytes"] == 230539874932483 * 4
        assert (row["state"], row["rate_gbps"], row["lifespan_ms"]) == ("ACTIVE", 400.0, 12)
        assert "lifespan" not in row["hw_counters"]

    def test_a_counter_without_pma_is_null_with_the_reason(self) -> None:
        row = first("sysfs/infiniband-i40iw0-na.txt")
        assert row["rcv_bytes"] is None
        assert row["missing"]["port_rcv_data"] == "N/A (no PMA)"

    def test_pfc_not_configured_is_a_state_of_its_own(self) -> None:
        assert first("ethtool/mlx5-cx4-full-no-pfc.txt")["pfc"] == "not configured"
        assert first("ethtool/mlx5-prio3-pfc-storm-annotated.txt")["pfc"] == "configured"
        assert first("ethtool/mlx5-prio-after.txt")["pfc"] is None

    def test_keys_with_colons_and_blanks(self) -> None:
        assert first("ethtool/bnx2x-queue-prefixed.txt")["counters"]["[1]: rx_ucast_packets"] == 170492982
        assert first("ethtool/generic-nic-odd-keys.txt")["counters"]["duplicate metric"] == 1

    def test_the_busiest_priority(self) -> None:
        assert first("ethtool/mlx5-prio-after.txt")["busiest_priority"] == 0

    def test_small_listings(self) -> None:
        assert first("rdma/ibv-devinfo-roce-two-hca.txt")["mtu_below_max"] is True
        assert first("rdma/ibv-devinfo-v-gid-list.txt")["usable_gid_index"] == 3
        gids = parsed("rdma/show-gids-roce-v1-v2-two.txt").rows
        assert [(row["hca"], row["index"]) for row in gids if row["usable"]] == [("mlx5_0", 3), ("mlx5_1", 3)]
        assert first("rdma/rdma-statistic-show.txt")["counters"]["resp_cqe_error"] == 1009
        assert [row["up"] for row in parsed("rdma/ibdev2netdev-one-down.txt").rows] == [True, False, True, True]


class TestNcclTests:
    def test_not_checked_is_null(self) -> None:
        row = first("nccl-tests/alltoall-2node-h100-truncated-note.txt")
        assert (row["in_wrong"], row["out_wrong"], row["redop"]) == (None, 0, None)
        assert row["out_busbw_gbytes_per_s"] == 86.6

    def test_a_header_without_rows_is_an_error(self) -> None:
        names = [event.name for event in events("nccl-tests/allreduce-h100-16rank-header.txt")]
        assert "no_rows" in names

    def test_wrong_results_spoil_the_test(self) -> None:
        from runners.formats.nccl_tests import parse

        text = ["# Out of bounds values : 50 FAILED", "# Avg bus bandwidth    : 33.3227"]
        assert [event.name for event in collect(parse(text)).events] == ["invalid_result", "average_bus_bandwidth"]


class TestVllmLog:
    def test_versions_of_the_stats_line(self) -> None:
        old = first("vllm-log/engine-stats-v0-0.5-swapped-pending.log")
        assert (old["waiting"], old["swapped"], old["kv_usage"], old["cpu_kv_usage"]) == (0, 0, 0.156, 0.0)
        new = parsed("vllm-log/engine-stats-v1-deferred-external-spec.log").rows
        assert (new[2]["deferred"], new[2]["engine"], new[2]["external_prefix_hit_ratio"]) == (1, 1, 1.0)
        assert (new[1]["accept_length"], new[1]["accept_per_position"]) == (1.92, [0.918])
        mfu = first("vllm-log/engine-stats-v1-0.12-mfu-ansi.log")
        assert (mfu["tflops_per_gpu"], mfu["gbytes_per_s_per_gpu"], mfu["pid"]) == (11.3, 772.8, 2548211)
        docker = first("vllm-log/engine-stats-docker-ts-prefix.log")
        assert docker["received"] == "2026-05-12T08:01:39.331095044Z"

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            (
                "(APIServer pid=1) INFO 11-29 15:00:00 [loggers.py:335] Engine 003: Avg prompt throughput: 1.5 "
                "tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, Deferred: 1 "
                "reqs, KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, Preemptions: 7, GPU KV cache "
                "usage: 9.9%, Prefix cache hit rate: 10.0%, Corrupted: 2 reqs, External prefix cache hit rate: 1.0%",
                {"engine": 3, "deferred": 1, "preemptions": 7, "corrupted": 2, "kv_usage": 0.099,
                 "extra": {"KV fetch": "1 waiting to start, 2 in progress, 3 completed waiting"}},
            ),
            (
                "INFO 11-29 15:00:00 [loggers.py:1] 2 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg "
                "generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU + host KV cache "
                "usage: 0.0%",
                {"engine": None, "engines": 2, "kv_device": "GPU + host"},
            ),
            (
                "INFO 11-29 15:00:00 [core.py:9] Iteration(12): 1 context requests, 512 context tokens, 7 generation "
                "requests, 7 generation tokens, iteration elapsed time: 33.51 ms",
                {"iteration": 12, "context_tokens": 512, "step_ms": 33.51},
            ),
        ],
    )  # fmt: skip
    def test_newer_lines(self, line: str, expected: dict[str, Any]) -> None:
        row = vllm_line(line)
        assert isinstance(row, dict)
        assert {key: row[key] for key in expected} == expected

    def test_a_damaged_stats_line_is_counted(self) -> None:
        line = "INFO 11-29 15:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tok"
        assert isinstance(vllm_line(line), Skip)

    def test_start_up_figures(self) -> None:
        stages = {
            event.detail["stage"]: event.detail for event in events("vllm-log/startup-kv-and-concurrency-0.11.log")
        }
        assert stages["kv_memory"]["kv_bytes"] == round(35.34 * GIB)
        assert stages["graph_capture_end"]["graph_bytes"] == round(0.72 * GIB)
        assert stages["engine_ready"]["init_s"] == 113.49
        one_line = vllm_line("INFO 11-29 15:00:00 [k.py:1] GPU KV cache size: 1,226,910 tokens, Maximum concurrency "
                             "for 131,072 tokens per request: 9.36x")  # fmt: skip
        assert isinstance(one_line, Event)
        assert (one_line.detail["kv_tokens"], one_line.detail["max_concurrency"]) == (1226910, 9.36)
        ready = [event.name for event in events("vllm-log/startup-kv-one-sequence-only.log")]
        assert ready[-1] == "ready"


class TestSglangLog:
    def test_versions_of_the_batch_lines(self) -> None:
        hybrid = first("sglang-log/decode-swa-full-usage-before-retract.log")
        assert (hybrid["kv_tokens"], hybrid["kv_usage"], hybrid["swa_usage"]) == (2642688, 1.0, 0.06)
        spec = parsed("sglang-log/prefill-decode-npu-spec-pending-token.log").rows[1]
        assert (spec["accept_length"], spec["graph"], spec["graph_device"], spec["ep_rank"]) == (3.05, True, "npu", 0)
        old = parsed("sglang-log/decode-tp0-0.3-cache-hit-rate.log").rows[2]
        assert (old["record"], old["prefix_hit_ratio"], old["cached_tokens"]) == ("prefill", 0.9427, 27)
        ranks = {row["dp_rank"] for row in parsed("sglang-log/decode-dp-tp-two-nodes.log").rows}
        assert ranks == set(range(8, 16))

    def test_start_up_figures(self) -> None:
        stages = {event.detail["stage"]: event.detail for event in events("sglang-log/v0.5.23-real.log")}
        assert stages["limits"]["max_running"] == 16
        assert stages["kv_cache"]["kv_tokens"] == 40000
        assert "ready" in stages

    def test_retractions_are_summed_over_events_not_over_ranks(self) -> None:
        line = "[2026-07-22 01:22:40 TP{}] KV cache pool is full. Retract requests. #retracted_reqs: 3"
        from runners.formats.sglang_log import parse_line

        found = [parse_line(line.format(rank)) for rank in range(8)]
        (event,) = incidents.fold(event for event in found if isinstance(event, Event))
        assert event.detail["requests"] == 3
        assert event.detail["ranks"] == list(range(8))
