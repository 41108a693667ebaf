"""The GPU probe: recorded output of the lab's stand-in, and its own loop against tools that misbehave."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from runners.probes import PROBES, Parsed
from runners.probes import tool as probe_tool
from store.records import GpuSample, LogEvent
from tests.runners.probes.running import CONTEXT, observe, tool

DATA = Path(__file__).parent.parent.parent / "data" / "probes"
KNOWN = "\n".join(f'"{name}"' for name in ("index", "uuid", "pci.bus_id", "name", "power.draw", "utilization.gpu"))
ROWS = (
    "index, uuid, pci.bus_id, name, utilization.gpu [%], power.draw [W]\n"
    "0, GPU-a-b-c, 00000000:16:00.0, Test, 50, 300.5\n1, GPU-d-e-f, 00000000:27:00.0, Test, [N/A], 310.0\n"
)


def recorded(name: str) -> Parsed:
    return PROBES["nvidia"].parse((DATA / name).read_bytes(), CONTEXT, final=True)


def gpus(parsed: Parsed) -> list[GpuSample]:
    return [r for r in parsed.records if isinstance(r, GpuSample)]


def events(parsed: Parsed) -> list[str]:
    return [r.name for r in parsed.records if isinstance(r, LogEvent)]


def quick_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    script = probe_tool._SH_TOOL
    assert "limit=10 " in script
    monkeypatch.setattr(probe_tool, "_SH_TOOL", script.replace("limit=10 ", "limit=1 "))


def path_with(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_healthy_node_gives_eight_full_rows() -> None:
    parsed = recorded("nvidia_healthy.frames")
    assert parsed.skipped == 0
    assert [g.gpu for g in gpus(parsed)] == list(range(8))
    first = gpus(parsed)[0]
    assert first.uuid == "GPU-717d1374-c460-eb1b-bc16-b00c419d9c8e"
    assert first.mem_total_bytes == 97887 << 20
    assert (first.pstate, first.throttle, first.ecc_errors_total) == ("P1", "", 0)
    assert first.power_w is not None
    assert first.sm_mhz is not None
    assert first.pcie_rx_bps is None  # nvidia-smi has no query field for it


def test_what_is_not_available_is_null_and_never_zero() -> None:
    rows = gpus(recorded("nvidia_na.frames"))[:8]
    assert {(g.util_pct, g.mem_util_pct, g.power_w) for g in rows} == {(None, None, None)}
    assert rows[0].mem_used_bytes == 89077 << 20
    assert rows[3].throttle == "sw_thermal_slowdown"
    lost = rows[5]
    assert (lost.gpu, lost.uuid, lost.temp_c, lost.throttle, lost.mem_used_bytes) == (5, None, None, None, None)


def test_fields_that_an_old_driver_lacks_are_named() -> None:
    parsed = recorded("nvidia_old.frames")
    named = next(r for r in parsed.records if isinstance(r, LogEvent))
    assert (named.name, named.detail) == ("probe_field_missing", "clocks_event_reasons.active")
    assert {g.throttle for g in gpus(parsed)} == {None}


def test_half_a_line_costs_one_gpu_of_one_sample() -> None:
    parsed = recorded("nvidia_garbage.frames")
    frames = (DATA / "nvidia_garbage.frames").read_bytes().count(b"#frame gpus")
    assert parsed.skipped == frames
    assert [g.gpu for g in gpus(parsed)] == [0, 1, 2, 4, 5, 6, 7] * frames


def test_a_lost_gpu_and_a_broken_driver_are_events_with_the_tools_own_words() -> None:
    assert events(recorded("nvidia_lost.frames")) == ["gpu_lost", "source_failed"]
    mismatch = recorded("nvidia_mismatch.frames")
    assert "driver_mismatch" in events(mismatch)
    failed = next(r for r in mismatch.records if isinstance(r, LogEvent) and r.name == "source_failed")
    assert failed.detail is not None
    assert "exit 18" in failed.detail
    assert "version mismatch" in failed.detail
    assert mismatch.skipped == 0


def test_a_node_without_nvidia_smi_says_so_once_and_ends(tmp_path: Path) -> None:
    for name in ("sh", "date", "sleep", "timeout"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    parsed = observe("nvidia", lambda p: False, env={"PATH": str(tmp_path)})
    assert events(parsed) == ["source_unavailable"]
    assert gpus(parsed) == []


def test_only_known_fields_are_asked_for(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    body = f"""case $1 in
--help-query-gpu) cat <<'X'\n{KNOWN}\nX\n;;
*) echo "$1" >>{asked}; cat <<'X'\n{ROWS}X\n;;
esac
"""
    tool(tmp_path / "bin", "nvidia-smi", body)
    parsed = observe("nvidia", lambda p: len(gpus(p)) >= 4, env=path_with(tmp_path / "bin"))
    question = asked.read_text().splitlines()[0]
    assert question == "--query-gpu=index,uuid,pci.bus_id,name,utilization.gpu,power.draw"
    missing = next(r.detail or "" for r in parsed.records if isinstance(r, LogEvent))
    assert "temperature.gpu" in missing
    assert [(g.gpu, g.util_pct, g.power_w) for g in gpus(parsed)[:2]] == [(0, 50.0, 300.5), (1, None, 310.0)]


def test_a_field_that_turns_out_invalid_is_dropped_and_the_rest_goes_on(tmp_path: Path) -> None:
    body = f"""case $1 in
--help-query-gpu) exit 1;;
*power.limit*) printf 'Field "power.limit" is not a valid field to query.\\n\\n'; exit 2;;
*pstate*) printf 'Field "pstate" is not a valid field to query.\\n\\n'; exit 2;;
*) cat <<'X'\n{ROWS}X\n;;
esac
"""
    tool(tmp_path / "bin", "nvidia-smi", body)
    parsed = observe("nvidia", lambda p: len(gpus(p)) >= 2, env=path_with(tmp_path / "bin"))
    details = [r.detail for r in parsed.records if isinstance(r, LogEvent)]
    assert sorted(d or "" for d in details) == ["power.limit", "pstate"]


def test_a_hung_tool_is_killed_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_to_kill(monkeypatch)
    tool(tmp_path / "bin", "nvidia-smi", f"case $1 in --help*) echo '{KNOWN}';; *) exec sleep 60;; esac\n")
    parsed = observe("nvidia", lambda p: "source_hung" in events(p), env=path_with(tmp_path / "bin"))
    assert gpus(parsed) == []


def test_a_failure_that_lasts_is_told_once(tmp_path: Path) -> None:
    tool(
        tmp_path / "bin", "nvidia-smi", "case $1 in --help*) exit 9;; *) echo 'No devices were found'; exit 6;; esac\n"
    )
    parsed = observe("nvidia", lambda p: "source_failed" in events(p), env=path_with(tmp_path / "bin"))
    assert events(parsed).count("source_failed") == 1


def test_one_lost_gpu_does_not_stop_the_others(tmp_path: Path) -> None:
    for bus in ("0000:16:00.0", "0000:27:00.0", "0000:38:00.0"):
        (tmp_path / "proc" / "driver" / "nvidia" / "gpus" / bus).mkdir(parents=True)
    body = """case "$*" in
--help*) echo '"index"';;
*16:00.0*) printf 'index\\n0\\n';;
*38:00.0*) printf 'index\\n2\\n';;
*) echo 'Unable to determine the device handle for GPU 0000:27:00.0: GPU is lost.  Reboot the system'
   exit 15;;
esac
"""
    tool(tmp_path / "bin", "nvidia-smi", body)
    env = {**path_with(tmp_path / "bin"), "TWINRAIL_PROC": str(tmp_path / "proc")}
    parsed = observe("nvidia", lambda p: len(gpus(p)) >= 3, env=env)
    assert [(g.gpu, g.missing is None) for g in gpus(parsed)] == [(0, True), (1, False), (2, True)]
    gone = gpus(parsed)[1]
    assert "GPU is lost" in (gone.missing or "")
    assert (gone.pci_bus_id, gone.util_pct, gone.mem_used_bytes) == ("0000:27:00.0", None, None)
    lost = next(r for r in parsed.records if isinstance(r, LogEvent) and r.name == "gpu_lost")
    assert lost.severity == "fatal"


def test_a_tool_that_fails_for_all_because_one_gpu_is_lost_loses_one() -> None:
    said = "Unable to determine the device handle for GPU3: 0000:5A:00.0: Unknown Error"
    frames = "".join(
        f"#frame gone 1 2\n{pair}\n{said}\n#end\n" for pair in ("1=00000000:27:00.0", "3=00000000:5A:00.0")
    )
    other, lost = gpus(PROBES["nvidia"].parse(frames.encode(), CONTEXT, final=True))
    assert (other.gpu, other.missing) == (1, "figures: nvidia-smi fails for another GPU, 0000:5A:00.0")
    assert (lost.gpu, lost.missing) == (3, "all: Unknown Error")
