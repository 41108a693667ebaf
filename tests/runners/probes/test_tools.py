"""Probes of vendor tools on recorded outputs: the same columns for every maker, absent never zero."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runners.probes import PROBES, Parsed
from runners.probes.base import wanted_on
from runners.probes.servers import role_of
from runners.spec import Devices, Node
from store.records import GpuProcess, LogEvent
from tests.runners.probes.running import CONTEXT, observe, tool
from tests.runners.probes.test_nvidia import events, gpus, path_with, quick_to_kill

DATA = Path(__file__).parent.parent.parent / "data" / "probes"


def framed(probe: str, kind: str, body: str) -> Parsed:
    return PROBES[probe].parse(f"#frame {kind} 1000 2000\n{body}\n#end\n".encode(), CONTEXT, final=True)


def printing(folder: Path, name: str, sample: str) -> dict[str, str]:
    """A PATH with a tool that prints a recorded output."""
    tool(folder / "bin", name, f"cat {DATA / sample}\n")
    return path_with(folder / "bin")


def test_hygon_cards_fill_the_columns_that_hy_smi_has(tmp_path: Path) -> None:
    parsed = observe("hygon", lambda p: len(gpus(p)) >= 6, env=printing(tmp_path, "hy-smi", "hy-smi.txt"))
    first = gpus(parsed)[0]
    assert (first.source, first.gpu, first.util_pct, first.mem_used_pct) == ("hy-smi", 0, 74, 87)
    assert (first.temp_c, first.power_w, first.power_limit_w, first.pstate) == (67.0, 8.0, 600.0, "manual")
    assert (first.mem_used_bytes, first.sm_mhz, first.throttle) == (None, None, None)
    assert parsed.skipped == 0


@pytest.mark.parametrize(
    ("name", "sample", "source"), [("rocm-smi", "rocm-smi.json", "rocm-smi"), ("amd-smi", "amd-smi.txt", "amd-smi")]
)
def test_amd_cards_by_either_tool(tmp_path: Path, name: str, sample: str, source: str) -> None:
    parsed = observe("amd", lambda p: bool(gpus(p)), env=printing(tmp_path, name, sample))
    first = gpus(parsed)[0]
    assert first.source == source
    assert first.gpu == 0
    assert first.util_pct == 0
    assert first.power_w is not None
    assert first.throttle == ("" if name == "amd-smi" else None)
    assert parsed.skipped == 0


def test_dcgm_gives_shares_and_says_when_they_are_not_to_be_had(tmp_path: Path) -> None:
    parsed = framed("dcgm", "dcgm", (DATA / "dcgmi.txt").read_text())
    first, second = gpus(parsed)
    assert (first.sm_active_pct, first.sm_occupancy_pct, first.tensor_active_pct) == (91.2, 45.5, 61.0)
    assert (second.sm_active_pct, second.dram_active_pct, second.util_pct) == (None, None, None)
    assert "dram_active_ratio: N/A" in (second.missing or "")
    page = "# Entity  SMACT\\n# ID\\n" + "GPU 0     N/A\\nGPU 1     N/A\\n" * 5
    tool(tmp_path / "bin", "dcgmi", f"printf '{page}'\nsleep 1\n")
    parsed = observe("dcgm", lambda p: "profiling_paused" in events(p), env=path_with(tmp_path / "bin"))
    assert [g.gpu for g in gpus(parsed)][:4] == [0, 1, 0, 1]
    assert {g.sm_active_pct for g in gpus(parsed)} == {None}


def test_dcgm_that_cannot_start_says_so(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "dcgmi", "echo 'Error: unable to establish a connection to the specified host'; exit 255\n")
    parsed = observe("dcgm", lambda p: "source_failed" in events(p), env=path_with(tmp_path / "bin"))
    said = next(r for r in parsed.records if isinstance(r, LogEvent))
    assert "exit 255" in (said.detail or "")
    assert "unable to establish" in (said.detail or "")


def test_pcie_traffic_is_bytes_a_second_and_a_dash_is_null() -> None:
    parsed = framed(
        "pcie", "pcie", "# gpu  rxpci  txpci\n# Idx   MB/s   MB/s\n    0   1250    980\n    1      -      -"
    )
    assert [(g.gpu, g.pcie_rx_bps, g.pcie_tx_bps) for g in gpus(parsed)] == [(0, 1.25e9, 9.8e8), (1, None, None)]
    assert gpus(parsed)[1].missing == "pcie_rx_bps: -; pcie_tx_bps: -"


def test_memory_of_processes_is_told_by_gpu() -> None:
    parsed = framed("gpu_processes", "processes", (DATA / "compute-apps.csv").read_text())
    found = [r for r in parsed.records if isinstance(r, GpuProcess)]
    assert [(r.pid, r.name, r.mem_used_bytes) for r in found][:1] == [(10291, "/root/tools/memhog", 2566 << 20)]
    assert {r.gpu_uuid for r in found} == {"GPU-00000000-0000-0000-0000-000000000000"}
    assert parsed.skipped == 0
    nobody = framed("gpu_processes", "processes", "No running processes found")
    assert (nobody.records, nobody.skipped) == ([], 0)


@pytest.mark.parametrize("name", ["hygon", "amd", "pcie", "gpu_processes", "dcgm", "nvidia"])
def test_a_tool_that_is_not_there_is_told_once_and_ends_the_probe(tmp_path: Path, name: str) -> None:
    for program in ("sh", "date", "sleep", "timeout", "head"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    parsed = observe(name, lambda p: False, env={"PATH": str(tmp_path)})
    assert events(parsed) == ["source_unavailable"]


def test_a_hung_vendor_tool_is_killed_shown_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_to_kill(monkeypatch)
    flag, sample = tmp_path / "flag", DATA / "hy-smi.txt"
    tool(tmp_path / "bin", "hy-smi", f"if [ -e {flag} ]; then cat {sample}; else : >{flag}; exec sleep 60; fi\n")
    tool(tmp_path / "bin", "sleep", f'case $1 in 4) ;; *) exec {shutil.which("sleep")} "$@";; esac\n')
    parsed = observe("hygon", lambda p: bool(gpus(p)), env=path_with(tmp_path / "bin"))
    assert events(parsed) == ["source_hung"]


def test_a_probe_runs_where_its_makers_devices_are() -> None:
    names = {
        vendor: {n for n, p in PROBES.items() if wanted_on(p, Node(name="n", host="h", devices=Devices(vendor=vendor)))}
        for vendor in ("nvidia", "hygon", "amd", "none")
    }
    assert names["nvidia"] - names["none"] == {"nvidia", "pcie", "gpu_processes", "dcgm"}
    assert names["hygon"] - names["none"] == {"hygon"}
    assert names["amd"] - names["none"] == {"amd"}
    assert {"host", "rails", "threads", "numa", "kernel"} <= names["none"]


def test_engines_name_their_processes() -> None:
    assert role_of("sglang::scheduler_TP3") == "scheduler"
    assert role_of("sglang::detokenizer") == "detokenizer"
    assert role_of("VLLM::EngineCore") == "engine core"
    assert role_of("VLLM::Worker_TP11") == "worker"
    assert role_of("python3-msglang.launch_server--model") == "front end"
    assert role_of("/usr/bin/vllm serve") == "front end"
    assert role_of("sh-c") == "other"
