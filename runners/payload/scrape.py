"""Fetches an engine's /metrics again and again; standard library only, any Python 3.9+.

    scrape.py URL [INTERVAL_S]

Prints one frame a tick (see runners/probes/base.py):

    #frame metrics <wall_ns> <mono_ns>       the page without buckets, HELP and TYPE lines that nobody reads
    #frame down <wall_ns> <mono_ns>          one line: why there is no page
    #end

Trouble (no page, or a page without a metric of an engine) is printed when it is new and once a minute while it lasts.

One connection is kept; a new one is made when it breaks. An API key comes by TWINRAIL_API_KEY.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from typing import List, Optional, Tuple
from urllib.parse import urlsplit

LIMIT = 3 << 20  # bytes of a page that are read; the frame must stay below 4 MiB
TIMEOUT = 5.0
AGAIN = 60.0  # seconds between two reports of the same trouble


def slim(page: bytes) -> List[bytes]:
    """The lines worth keeping: samples but no histogram buckets, and the HELP line that tells the unit of the prefix
    counters. No line may look like the end of the frame."""
    kept = []
    for line in page.splitlines():
        if line.startswith(b"#"):
            if line.startswith(b"# HELP ") and b"prefix_cache_queries" in line:
                kept.append(line)
        elif line and b"_bucket{" not in line and b"_created" not in line:
            kept.append(line)
    return kept


class Scraper:
    """One kept-alive connection to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else "http://" + url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port
        self.path = parts.path.rstrip("/") + "/metrics"
        self.connection: Optional[http.client.HTTPConnection] = None

    def get(self) -> Tuple[Optional[bytes], str]:
        """(page, "") or (None, why not). A kept connection that the server has closed meanwhile gets a second try."""
        kept = self.connection is not None
        try:
            try:
                return self.ask()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.close()
                if not kept:
                    raise
                return self.ask()
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.close()
            return None, ("%s: %s" % (type(e).__name__, e)).replace("\n", " ")[:300]

    def ask(self) -> Tuple[Optional[bytes], str]:
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
            self.connection = kind(self.host, self.port, timeout=TIMEOUT)
        headers = {"Accept": "text/plain"}
        if os.environ.get("TWINRAIL_API_KEY"):
            headers["Authorization"] = "Bearer " + os.environ["TWINRAIL_API_KEY"]
        self.connection.request("GET", self.path, headers=headers)
        answer = self.connection.getresponse()
        page = answer.read(LIMIT + 1)
        if len(page) > LIMIT:
            self.close()
            page = page[: page.rfind(b"\n", 0, LIMIT) + 1]
        if answer.status != 200:
            return None, "HTTP %d" % answer.status
        return page, ""

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def frame(kind: str, wall: int, mono: int, lines: List[bytes]) -> bytes:
    head = b"#frame %s %d %d" % (kind.encode(), wall, mono)
    return b"\n".join([head, *lines, b"#end", b""])


def main(argv: List[str]) -> int:
    if not argv:
        print(__doc__, file=sys.stderr)
        return 2
    interval = int(max(0.1, float(argv[1]) if len(argv) > 1 else 1.0) * 1e9)
    scraper = Scraper(argv[0])
    said, said_at = "", 0.0
    while True:
        wall, mono = time.time_ns(), time.monotonic_ns()
        page, why = scraper.get()
        kind, lines = ("down", [why.encode("utf-8", "replace")]) if page is None else ("metrics", slim(page))
        if page is not None and not any(line.startswith((b"vllm", b"sglang")) for line in lines):
            why = "no engine metric"
        if not why or why != said or mono / 1e9 - said_at >= AGAIN:
            os.write(1, frame(kind, wall, mono, lines))
            said, said_at = why, mono / 1e9
        now = time.time_ns()
        time.sleep((interval - now % interval) / 1e9)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(0)
