"""The whole default report against public tools on the same trace: CPU seconds and peak memory, side by side.

Run by hand; each tool runs in a fresh process of its own Python, measured by the kernel's accounts of that process:

    python tests/benchmarks/analyze_vs_peers.py TRACE.json --hta PYTHON --tracelens PYTHON

HTA does load, temporal breakdown, overlap and kernel table, TraceLens its GPU breakdown alone, the walk is a split of
the file and a typed parse of every event with nothing kept (msgspec where `--walk` names a Python that has it, else
orjson): the floor that a Python tool cannot go below. ../shared/tools/scale_trace.py makes big traces from real ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OURS = """
import sys
from pathlib import Path
from console.analyze import analyze
sys.exit(analyze([Path(sys.argv[1])], json_out=True))
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
"""

TRACELENS = """
import sys
import orjson
from TraceLens import GPUEventAnalyser
with open(sys.argv[1], "rb") as file:
    events = orjson.loads(file.read())["traceEvents"]
for number, event in enumerate(events):
    event["UID"] = number
GPUEventAnalyser(events).get_breakdown_df()
"""

WALK = """
import re, sys
try:
    import msgspec
    class Event(msgspec.Struct):
        name: str = ""
        cat: str = ""
        ph: str = ""
        ts: float = 0
        dur: float = 0
        pid: int | str = 0
        tid: int | str = 0
        args: dict = {}
    parse = msgspec.json.Decoder(Event).decode
except ImportError:
    import orjson
    parse = orjson.loads
rest, count, started = b"", 0, False
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(4 << 20):
        rest += chunk
        if not started:
            at = rest.find(b'"traceEvents"')
            if at < 0:
                continue
            rest, started = rest[rest.index(b"[", at) + 1:], True
        if b"\\n  },\\n  {" in rest:
            pieces = rest.split(b"\\n  },")
            done = [piece + b"}" for piece in pieces[:-1]]
        else:
            pieces = rest.split(b",\\n")
            done = pieces[:-1]
        rest = pieces[-1]
        for piece in done:
            parse(piece)
            count += 1
print(count, "events", file=sys.stderr)
"""


def measure(python: str, code: str, trace: Path) -> tuple[float, float, int]:
    """CPU seconds, peak MiB and exit code of one tool on one trace."""
    # Columns of an earlier run would spare ours the reading: every run starts without.
    shutil.rmtree(trace.with_name(trace.name + ".columns"), ignore_errors=True)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        environment = os.environ | {"PYTHONPATH": str(ROOT)} if code is OURS else None
        with subprocess.Popen([python, script.name, str(trace)], stdout=subprocess.DEVNULL, env=environment) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def main() -> int:
    """Measure every tool that was named, and print each against ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hta", help="a Python with HolisticTraceAnalysis")
    parser.add_argument("--tracelens", help="a Python with TraceLens")
    parser.add_argument("--walk", default=sys.executable, help="a Python with msgspec (default: this one)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of ours and of the walk (default 2)")
    asked = parser.parse_args()
    ours, walk = ("twinrail, whole report", sys.executable, OURS), ("split and typed parse", asked.walk, WALK)
    peers = [("HolisticTraceAnalysis", asked.hta, HTA)] if asked.hta else []
    peers += [("TraceLens GPU breakdown", asked.tracelens, TRACELENS)] if asked.tracelens else []
    # Ours and the walk alternate, so that what else the machine does meets both; peers are far off and run once.
    order = [ours, walk, *peers] + [ours, walk] * (asked.repeats - 1)
    print(f"{asked.trace.name}: {asked.trace.stat().st_size / 1e6:.0f} MB")
    runs: dict[str, list[tuple[float, float, int]]] = {}
    for name, python, code in order:
        runs.setdefault(name, []).append(measure(python, code, asked.trace))
    base_cpu, base_memory = min(cpu for cpu, _, _ in runs[ours[0]]), max(memory for _, memory, _ in runs[ours[0]])
    for name, measured in runs.items():
        cpu, memory = min(run[0] for run in measured), max(run[1] for run in measured)
        each = ", ".join(f"{run[0]:.2f}" for run in measured)
        failed = "" if all(run[2] == 0 for run in measured) else "  (failed)"
        print(
            f"{name:26} {cpu:7.2f} CPU s ({cpu / base_cpu:5.2f}x; {each})  "
            f"{memory:7.0f} MiB ({memory / base_memory:5.2f}x){failed}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
