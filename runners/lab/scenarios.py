"""What can go wrong in the embedded lab, by name: flags of the simulated engine and behaviour of the devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Scenario:
    """One named state of affairs.

    sim_flags    for the deployment, after the lab's own
    rail_share   (node index, HCA) -> factor on the traffic that the engine reports for this rail
    rail_rates   (node index, HCA) -> further counters, in events a second while the rail carries traffic
    throttle     (node index, GPU) -> clock event reason that holds while the GPU works
    """

    title: str
    sim_flags: tuple[str, ...] = ()
    rail_share: dict[tuple[int, str], float] = field(default_factory=dict)
    rail_rates: dict[tuple[int, str], dict[str, float]] = field(default_factory=dict)
    throttle: dict[tuple[int, int], str] = field(default_factory=dict)


SCENARIOS: Final[dict[str, Scenario]] = {
    "healthy": Scenario("two nodes, both rails busy, nothing wrong"),
    "idle-rail": Scenario(
        "the second rail of both nodes carries nothing",
        rail_share={(n, h): s for n in (0, 1) for h, s in (("mlx5_0", 2.0), ("mlx5_3", 0.0))},
    ),
    "lossy-rail": Scenario(
        "the second rail of the second node retransmits",
        rail_rates={(1, "mlx5_3"): {"packet_seq_err": 40.0, "out_of_sequence": 55.0, "local_ack_timeout_err": 0.5}},
    ),
    "slow-rank": Scenario(
        "one GPU of the second node is throttled and holds all others up",
        ("--fault", "slow-rank=1:1.6"),
        throttle={(1, 3): "sw_thermal_slowdown"},
    ),
    "host-bound": Scenario(
        "the one scheduler process fills a core, and the GPUs wait for it in a saw-tooth",
        ("--style", "sglang", "--fault", "host-bound=60"),
    ),
    "prefill-storm": Scenario(
        "every other second long prompts of somebody else hold all decodes up",
        ("--style", "sglang", "--fault", "prefill-storm=1.5:3:16384"),
    ),
    "kv-pressure": Scenario("too little KV cache: pre-emptions from a concurrency of 8", ("--kv-tokens", "2000")),
    "oom-at-48": Scenario("device memory runs out at 48 running requests", ("--fault", "oom@C=48")),
    "crash": Scenario("the engine dies at the 40th request", ("--fault", "crash@req=40")),
    "worker-crash": Scenario("the second node's workers die 12 s after they joined", ("--fault", "worker-crash@12")),
    "hang": Scenario("the engine stops answering at the 40th request", ("--fault", "hang@req=40")),
    "slow-start": Scenario("the server takes a minute to come up", ("--fault", "slow-start=60")),
}
