"""What a node has, asked once over its link for `twinrail init`: devices, rails, models, container engine, images."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from runners.nodes.link import Link, NodeError
from runners.nodes.wire import printable
from runners.spec import Rail

MOST = 60  # images, models and rails that are kept
_ENGINES = ("docker", "podman", "nerdctl")

# POSIX tools only; every line is WORD TAB VALUE... What is not there leaves its lines out.
SURVEY = r"""
p() { printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5"; }
if command -v nvidia-smi >/dev/null 2>&1; then
  p vendor nvidia
  timeout 20 nvidia-smi -L 2>/dev/null | while read -r line; do p gpu "$line"; done
elif command -v hy-smi >/dev/null 2>&1; then p vendor hygon
elif command -v rocm-smi >/dev/null 2>&1 || command -v amd-smi >/dev/null 2>&1; then p vendor amd
fi
if ! command -v nvidia-smi >/dev/null 2>&1; then
  for d in /sys/class/kfd/kfd/topology/nodes/*/gpu_id; do
    { read -r id <"$d"; } 2>/dev/null && [ "$id" != 0 ] && p gpu "GPU $id"
  done
fi
main=$(ip -4 route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
for d in ${TWINRAIL_SYS:-/sys}/class/infiniband/*; do
  [ -e "$d" ] || continue
  net=
  for n in "$d"/device/net/*; do [ -e "$n" ] && net=${n##*/} && break; done
  [ -n "$net" ] || net=$(cat "$d"/ports/1/gid_attrs/ndevs/0 2>/dev/null)
  ip=$(ip -o -4 addr show dev "$net" 2>/dev/null | sed -n 's/.* inet \([0-9.]*\).*/\1/p' | head -n 1)
  [ "$net" = "$main" ] && ip="main $ip"
  p rail "${d##*/}" "$net" "$ip" "$(cat "$d"/ports/1/state 2>/dev/null);$(cat "$d"/ports/1/rate 2>/dev/null)"
done
for e in docker podman nerdctl; do
  command -v $e >/dev/null 2>&1 || continue
  if said=$(timeout 15 $e images --format '{{.Repository}}:{{.Tag}}' 2>&1); then
    p engine $e
    printf '%s\n' "$said" | head -n 60 | while read -r image; do p image $e "$image"; done
  elif said2=$(timeout 15 sudo -n $e images --format '{{.Repository}}:{{.Tag}}' 2>/dev/null); then
    p become $e
    printf '%s\n' "$said2" | head -n 60 | while read -r image; do p image $e "$image"; done
  else
    p refused $e "$(printf '%s' "$said" | tr '\n\t' '  ' | head -c 300)"
  fi
done
timeout 15 sh -c '
  for base in /models /data/models /data /mnt/models /mnt /srv/models /opt/models "$HOME/models" \
      "$HOME/.cache/huggingface/hub" ; do
    for c in "$base"/*/config.json "$base"/*/*/config.json "$base"/models--*/snapshots/*/config.json; do
      [ -e "$c" ] && printf "%s\n" "${c%/config.json}"
    done
  done' 2>/dev/null | head -n 60 | while read -r m; do p model "$m"; done
for python in "$@" /opt/conda/bin/python3 /opt/venv/bin/python3 "$HOME/.twinrail-venv/bin/python3"; do
  command -v "$python" >/dev/null 2>&1 || continue
  p python "$python"
  timeout 15 "$python" -c '
import importlib.util as u
print("\n".join("module\t" + m for m in ("aiohttp", "sglang", "vllm") if u.find_spec(m)))' 2>/dev/null
done
p end
"""


@dataclass(slots=True)
class Survey:
    """One node's answer. `error`: why there is none, with the next step.

    images: names of the chosen engine's images; become: whether that engine needs `sudo -n`; python: the interpreter
    that can import most of aiohttp, sglang and vllm, the first of several; modules: which of them.
    """

    error: NodeError | None = None
    vendor: str = "none"
    gpus: list[str] = field(default_factory=list)
    rails: list[Rail] = field(default_factory=list)
    idle_rails: list[str] = field(default_factory=list)
    container: str | None = None
    become: bool = False
    refused: str | None = None
    images: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    python: str | None = None
    modules: list[str] = field(default_factory=list)

    @property
    def gpu_name(self) -> str:
        """`NVIDIA H200` of `GPU 0: NVIDIA H200 (UUID: ...)`; empty when unknown."""
        match = re.match(r"GPU \d+: (.{1,60}?)(?: \(|$)", self.gpus[0]) if self.gpus else None
        return match[1] if match else ""


async def survey(link: Link, pythons: Sequence[str] = ("python3",)) -> Survey:
    """Ask the node, and of its interpreters these first. Never raises for what the node does: the answer says it."""
    try:
        await link.up(15.0)
        done = await link.run(shlex.join(["sh", "-c", SURVEY, "survey", *pythons]), timeout=90.0)
    except NodeError as e:
        return Survey(error=e)
    return parse_survey(done.stdout.decode("utf-8", "replace"))


def parse_survey(text: str) -> Survey:
    """The answer of SURVEY; lines that are none of it are left out."""
    found = Survey()
    images: dict[str, list[str]] = {}
    usable: dict[str, bool] = {}
    main: set[str] = set()
    pythons: dict[str, list[str]] = {}
    for line in text.splitlines()[:2000]:
        word, *values = [printable(part.encode()) for part in line.split("\t")]
        value, second, third, fourth = [*values, "", "", "", ""][:4]
        if not value:
            continue
        if word == "vendor":
            found.vendor = value if value in ("nvidia", "hygon", "amd") else "none"
        elif word == "gpu" and value.startswith("GPU ") and len(found.gpus) < 128:
            found.gpus.append(value)
        elif word == "rail":
            if third.startswith("main"):
                main.add(second)
            _rail(found, value, second, third.removeprefix("main").strip(), fourth)
        elif word in ("engine", "become") and value in _ENGINES:
            usable[value] = word == "become"
        elif word == "image" and "<none>" not in second and len(images.get(value, [])) < MOST:
            images.setdefault(value, []).append(second)
        elif word == "refused":
            found.refused = found.refused or f"{value}: {second}"
        elif word == "model" and value.startswith("/") and value not in found.models and len(found.models) < MOST:
            found.models.append(value)
        elif word == "python":
            pythons.setdefault(value, [])
        elif word == "module" and pythons:
            pythons[next(reversed(pythons))].append(value)
    if pythons:
        found.python = max(pythons, key=lambda one: len(pythons[one]))
        found.modules = pythons[found.python]
    # The port of the default route is a rail too, unless the others are faster.
    fastest = max((r.gbps or 0 for r in found.rails), default=0)
    slow = [r for r in found.rails if r.netdev in main and (r.gbps or 0) < fastest]
    found.rails = [r for r in found.rails if r not in slow]
    found.idle_rails += [f"{r.hca} ({r.netdev}, {r.gbps:g}G, carries the default route)" for r in slow if r.gbps]
    if usable:  # the one with images first; then docker before podman before nerdctl
        found.container = max(usable, key=lambda e: (bool(images.get(e)), -_ENGINES.index(e)))
        found.become = usable[found.container]
        found.images = images.get(found.container, [])
    return found


def _rail(found: Survey, hca: str, netdev: str, ip: str, port: str) -> None:
    """An active port with a netdev is a rail."""
    state, _, rate = port.partition(";")
    gbps = re.match(r"(\d+(?:\.\d+)?) *Gb", rate)
    if len(found.rails) >= MOST:
        return
    if "ACTIVE" not in state or not netdev:
        found.idle_rails.append(f"{hca} ({netdev or 'no netdev'}, {state or 'no state'})")
        return
    address = ip if re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", ip) else None
    found.rails.append(Rail(netdev=netdev, hca=hca, gbps=float(gbps[1]) if gbps else None, address=address))
