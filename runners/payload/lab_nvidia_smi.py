#!/usr/bin/env python3
"""Stand-in for nvidia-smi on a node of the embedded lab: --query-gpu, --query-compute-apps (csv), dmon -s t and -L.

Standard library only; runs with `python -IS`. TWINRAIL_LAB_STATE names the folder with

    gpu_load   JSON written by the simulated engine: {"memory_total": MiB, "gpus": {"0": {"util": %, "mem_used": MiB}},
               "procs": [{"pid": n, "name": text, "gpu": 0, "mib": n}]}
    devices    JSON written by the lab: {"node": name, "throttle": {"3": reason}}
"""

import json
import math
import os
import sys
import time
from typing import Any, Dict, List

COUNT = 8
LIMIT_W = 600.0
REASONS = {"gpu_idle": 0x1, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sw_thermal_slowdown": 0x20}
HELD_BACK = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
BUS = ("16", "27", "38", "5A", "98", "A8", "B8", "D8")


def read(name: str) -> Dict[str, Any]:
    """A JSON file of the state folder; {} when it is absent or being written."""
    try:
        with open(os.path.join(os.environ.get("TWINRAIL_LAB_STATE", "."), name), encoding="utf-8") as f:
            value = json.load(f)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def gpus() -> List[Dict[str, Any]]:
    """One dict of query field -> (value, unit) per GPU. Noise is a slow wave, so that neighbouring samples agree."""
    load, devices = read("gpu_load"), read("devices")
    total = int(load.get("memory_total", 97887))
    node = str(devices.get("node", "node"))
    out = []
    now = time.time()
    for slot in range(COUNT):
        one = load.get("gpus", {}).get(str(slot), {})
        wave = math.sin(now * (0.7 + slot * 0.13) + slot)
        util = float(one.get("util", 0))
        util = min(100.0, max(1.0, util * (1 + 0.03 * wave))) if util else 0.0
        reason = devices.get("throttle", {}).get(str(slot)) if util else "gpu_idle"
        slowed = util > 0 and reason is not None
        clock = (1410 if slowed else 2422) + round(12 * wave) if util else 180
        temperature = 29 + slot % 4 + util * 0.42 + (18 if slowed else 0)
        power = 33.5 + slot * 0.4 + util / 100 * (LIMIT_W - 60) * (0.62 if slowed else 0.92)
        seed = sum(map(ord, node)) * 97 + slot
        out.append(
            {
                "index": (slot, ""),
                "name": ("Simulated GPU (twinrail lab)", ""),
                "uuid": ("GPU-%08x-0000-4000-8000-%012x" % (seed * 2654435761 % 2**32, seed), ""),
                "pci.bus_id": ("00000000:%s:00.0" % BUS[slot], ""),
                "driver_version": ("580.00.00", ""),
                "count": (COUNT, ""),
                "pstate": ("P1" if util else "P8", ""),
                "utilization.gpu": (round(util), "%"),
                "utilization.memory": (round(util * 0.55), "%"),
                "memory.total": (total, "MiB"),
                "memory.used": (int(one.get("mem_used", 0)), "MiB"),
                "memory.free": (total - int(one.get("mem_used", 0)), "MiB"),
                "power.draw": ("%.2f" % (power * (1 + 0.015 * wave)), "W"),
                "power.limit": ("%.2f" % LIMIT_W, "W"),
                "temperature.gpu": (round(temperature), ""),
                "clocks.sm": (clock, "MHz"),
                "clocks.mem": (12481 if util else 405, "MHz"),
                "clocks.max.sm": (2430, "MHz"),
                "pcie.link.gen.current": (5 if util else 1, ""),
                "pcie.link.width.current": (16, ""),
                "clocks_event_reasons.active": ("0x%016X" % REASONS.get(str(reason), 0), ""),
                **{
                    "clocks_event_reasons_counters." + name: (int(now * 1e6) % 10**15 if reason == name else 0, "us")
                    for name in HELD_BACK
                },
                "ecc.errors.uncorrected.volatile.total": (0, ""),
                "ecc.errors.corrected.volatile.total": (0, ""),
            }
        )
    return out


def query(names: List[str], form: str, wanted: str) -> int:
    rows = gpus()
    unknown = [n for n in names if n not in rows[0]]
    if unknown:
        print('Field "%s" is not a valid field to query.\n' % unknown[0])
        return 2
    long = {"clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory"}
    if "noheader" not in form:
        print(", ".join(long.get(n, n) + (" [%s]" % rows[0][n][1] if rows[0][n][1] else "") for n in names))
    for row in rows:
        ids = {str(row[k][0]) for k in ("index", "uuid", "pci.bus_id")}
        if not wanted or ids & set(wanted.split(",")):
            print(
                ", ".join(str(v) + (" " + u if u and "nounits" not in form else "") for v, u in (row[n] for n in names))
            )
    return 0


def processes(form: str) -> int:
    """--query-compute-apps=pid,process_name,gpu_uuid,used_memory, whatever fields were asked for."""
    uuids = [str(row["uuid"][0]) for row in gpus()]
    unit = "" if "nounits" in form else " MiB"
    if "noheader" not in form:
        print("pid, process_name, gpu_uuid, used_gpu_memory [MiB]")
    procs = read("gpu_load").get("procs", [])
    pid = min([int(one["pid"]) for one in procs], default=0)  # the ranks of a node are one process, the first named
    for one in procs:
        print("%d, %s, %s, %d%s" % (pid, one["name"], uuids[int(one["gpu"])], one["mib"], unit))
    return 0


def dmon() -> int:
    """dmon -s t -c 1: PCIe traffic follows the load."""
    print("# gpu  rxpci  txpci\n# Idx   MB/s   MB/s")
    for row in gpus():
        print(
            "%5d %6d %6d" % (row["index"][0], int(row["utilization.gpu"][0]) * 31, int(row["utilization.gpu"][0]) * 23)
        )
    return 0


def main(argv: List[str]) -> int:
    options = {"--format": "csv", "-i": "", "--query-gpu": "", "--query-compute-apps": ""}
    if argv[:1] == ["dmon"]:
        return dmon()
    words = list(argv)
    while words:
        key, equals, value = words.pop(0).partition("=")
        key = "-i" if key == "--id" else key
        if key in ("-L", "--list-gpus"):
            for row in gpus():
                print("GPU %d: %s (UUID: %s)" % (row["index"][0], row["name"][0], row["uuid"][0]))
            return 0
        if key == "--help-query-gpu":
            print("\n".join('"%s"' % name for name in gpus()[0]))
            return 0
        if key not in options or not (equals or words):
            print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
            return 1
        options[key] = value if equals else words.pop(0)
    if options["--query-compute-apps"]:
        return processes(options["--format"])
    if not options["--query-gpu"]:
        print("The lab's stand-in knows --query-gpu, --query-compute-apps, --help-query-gpu, dmon and -L.")
        return 1
    return query([n.strip() for n in options["--query-gpu"].split(",")], options["--format"], options["-i"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
