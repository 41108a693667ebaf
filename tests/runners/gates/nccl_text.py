"""Synthetic NCCL logs with the exact wording of NCCL 2.2x, so that a test can drop or damage one line."""

from __future__ import annotations

from dataclasses import dataclass, field

NODES = ("node-a", "node-b")
HCAS = ("mlx5_0", "mlx5_3")
USING = "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:192.0.2.{host}<0>"


@dataclass
class Log:
    """Lines per node, in order."""

    lines: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in NODES})

    def add(self, node: int, gpu: int, text: str, pid_base: int = 1000) -> None:
        pid = pid_base + gpu
        self.lines[NODES[node]].append(f"{NODES[node]}:{pid}:{pid + 500} [{gpu}] NCCL INFO {text}")

    def all(self) -> list[str]:
        return [line for name in NODES for line in self.lines[name]]


def start(log: Log, gpus: int = 8, pid_base: int = 1000) -> None:
    for node in range(2):
        for gpu in range(gpus):
            log.add(node, gpu, USING.format(host=node + 1), pid_base)
            log.add(node, gpu, "Using network IB", pid_base)


def init(log: Log, node: int, gpu: int, rank: int, nranks: int, comm_id: str, pid_base: int = 1000) -> None:
    head = (
        f"ncclCommInitRank comm 0x5563e3b79{rank:03x} rank {rank} nranks {nranks} cudaDev {gpu} nvmlDev {gpu} "
        f"busId {gpu + 1}b000 commId {comm_id} - "
    )
    log.add(node, gpu, head + "Init START", pid_base)
    log.add(node, gpu, head + "Init COMPLETE", pid_base)


def channel(
    log: Log, node: int, gpu: int, number: int, ends: tuple[int, int], gpus: tuple[int, int], word: str, via: str,
    pid_base: int = 1000,
) -> None:  # fmt: skip
    text = f"Channel {number:02d}/0 : {ends[0]}[{gpus[0]}] -> {ends[1]}[{gpus[1]}] [{word}] via {via}"
    log.add(node, gpu, text, pid_base)


def tp16(via: tuple[str, str] = ("NET/IB/0/GDRDMA", "NET/IB/1/GDRDMA"), pid_base: int = 1000) -> Log:
    """One ring of 16 ranks: rank 7 -> 8 and 15 -> 0 cross the nodes, on two channels."""
    log = Log()
    start(log, pid_base=pid_base)
    for rank in range(16):
        init(log, rank // 8, rank % 8, rank, 16, "0xaa01", pid_base)
    for number in range(4):
        net = via[number % 2]
        for a, b in ((7, 8), (15, 0)):
            devices = (a % 8, b % 8)
            channel(log, a // 8, a % 8, number, (a, b), devices, "send", net, pid_base)
            channel(log, b // 8, b % 8, number, (a, b), devices, "receive", net, pid_base)
        log.add(0, 0, f"Channel {number:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM/read", pid_base)
    return log


def tp8pp2() -> Log:
    """Two TP groups inside the nodes and eight pipeline pairs, activations one way."""
    log = Log()
    start(log)
    for node in range(2):
        for gpu in range(8):
            init(log, node, gpu, gpu, 8, f"0xbb0{node}")
    for gpu in range(8):
        for node in range(2):
            init(log, node, gpu, node, 2, f"0xcc0{gpu}")
        for number in range(2):
            net = f"NET/IB/{gpu % 2}/GDRDMA"
            channel(log, 0, gpu, number, (0, 1), (gpu, gpu), "send", net)
            channel(log, 1, gpu, number, (0, 1), (gpu, gpu), "receive", net)
    return log


def all_to_all(gpus: int = 8) -> Log:
    """TP inside the nodes, and one communicator of experts in which each rank reaches each rank of the other node."""
    log = Log()
    start(log, gpus)
    for node in range(2):
        for gpu in range(gpus):
            init(log, node, gpu, gpu, gpus, f"0xbb0{node}")
            init(log, node, gpu, node * gpus + gpu, 2 * gpus, "0xdd01")
    for a in range(2 * gpus):
        for b in range(2 * gpus):
            if a // gpus != b // gpus:
                net = f"NET/IB/{(a + b) % 2}/GDRDMA"
                for number in range(2):
                    channel(log, a // gpus, a % gpus, number, (a, b), (a % gpus, b % gpus), "send", net)
                    channel(log, b // gpus, b % gpus, number, (a, b), (a % gpus, b % gpus), "receive", net)
    return log
