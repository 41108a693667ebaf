"""Bounded TCP traffic over a rail: pump.py recv ADDR PORT SECONDS | send ADDR PORT SECONDS MBPS"""

import socket
import sys
import time

mode, addr, port, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
end = time.monotonic() + min(seconds, 600.0) + (3 if mode == "recv" else 0)
if mode == "recv":
    with socket.create_server((addr, port)) as server:
        server.settimeout(10)
        conn, _ = server.accept()
        conn.settimeout(2)
        while time.monotonic() < end:
            try:
                if not conn.recv(1 << 18):
                    break
            except TimeoutError:
                continue
else:
    rate = float(sys.argv[5]) * 125000.0
    with socket.create_connection((addr, port), timeout=5) as conn:
        chunk, start, sent = bytes(8192), time.monotonic(), 0
        while time.monotonic() < end:
            ahead = sent / rate - (time.monotonic() - start)
            if ahead > 0:
                time.sleep(min(ahead, 0.05))
                continue
            try:
                sent += conn.send(chunk)
            except TimeoutError:
                continue
