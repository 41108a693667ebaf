"""Delay and loss for one switch port, for kernels without netem.

relay.py PORT TAP BRIDGE RTT_MS JITTER_MS LOSS_PCT

Frames that arrive on PORT (a packet socket) leave through TAP (a member of
BRIDGE) after half the delay, and the other way round. Frames never overtake
each other. Runs until it is killed.
"""

import contextlib
import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque

port, tap, bridge = sys.argv[1:4]
delay, jitter, loss = (float(a) for a in sys.argv[4:7])
half, half_jitter, drop = delay / 2000.0, jitter / 2000.0, loss / 100.0

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
PACKET_OUTGOING = 4
tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", tap.encode(), IFF_TAP | IFF_NO_PI))
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
raw.bind((port, 0))
raw.setblocking(False)
with open(f"/sys/class/net/{port}/mtu") as f:
    mtu = f.read().strip()
subprocess.run(["ip", "link", "set", tap, "mtu", mtu, "master", bridge, "up"], check=True)

queues: dict[str, deque[tuple[float, bytes]]] = {"in": deque(), "out": deque()}


def put(name: str, frame: bytes) -> None:
    if drop and random.random() < drop:
        return
    at = time.monotonic() + half + (random.uniform(-half_jitter, half_jitter) if half_jitter else 0.0)
    queue = queues[name]
    if queue and queue[-1][0] > at:
        at = queue[-1][0]
    if len(queue) < 20000:
        queue.append((at, frame))


def flush(now: float) -> None:
    for name, queue in queues.items():
        while queue and queue[0][0] <= now:
            frame = queue.popleft()[1]
            with contextlib.suppress(OSError):  # port down, or a full queue: the frame is lost
                if name == "in":
                    os.write(tun, frame)
                else:
                    raw.send(frame)


while True:
    nexts = [q[0][0] for q in queues.values() if q]
    wait = max(0.0, min(nexts) - time.monotonic()) if nexts else 1.0
    ready = select.select([tun, raw.fileno()], [], [], wait)[0]
    for _ in range(256):
        if raw.fileno() not in ready:
            break
        try:
            frame, addr = raw.recvfrom(65536)
        except OSError:
            break
        if addr[2] != PACKET_OUTGOING:
            put("in", frame)
    for _ in range(256):
        if tun not in ready:
            break
        try:
            put("out", os.read(tun, 65536))
        except OSError:
            break
    flush(time.monotonic())
