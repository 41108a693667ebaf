"""Asks a server from the node where it runs; standard library only, any Python 3.9+.

    ask.py get URL PATH [PATH...]     the first path that answers 200 with JSON, as one JSON line
    ask.py generate URL MODEL TOKEN [SECONDS]   one real generation of one token: the only proof that a server is ready
    ask.py client                     whether this interpreter can run the load client

Prints one JSON line {"ok": bool, ...} and exits 0 when it could ask at all. An API key comes by TWINRAIL_API_KEY.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

LIMIT = 4 << 20


def fetch(url: str, body: dict[str, Any] | None = None, timeout: float = 10.0) -> tuple[int, bytes]:
    """HTTP status and body (bounded) of one request. Raises OSError when nobody answers."""
    headers = {"Content-Type": "application/json"}
    if os.environ.get("TWINRAIL_API_KEY"):
        headers["Authorization"] = "Bearer " + os.environ["TWINRAIL_API_KEY"]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is near: never by a proxy
    try:
        with opener.open(request, timeout=timeout) as answer:
            return answer.status, answer.read(LIMIT)
    except urllib.error.HTTPError as e:
        return e.code, e.read(LIMIT)


def get(url: str, paths: list[str]) -> dict[str, Any]:
    """The first path that answers with JSON."""
    tried = []
    for path in paths:
        try:
            status, body = fetch(url + path)
            if status == 200:
                return {"ok": True, "path": path, "json": json.loads(body)}
            tried.append(f"{path}: HTTP {status}")
        except (OSError, ValueError) as e:
            tried.append(f"{path}: {e}")
    return {"ok": False, "detail": "; ".join(tried)[:500]}


def served_model(url: str) -> str | None:
    """The first model that the server lists."""
    answer = get(url, ["/v1/models"])
    try:
        return str(answer["json"]["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        return None


def generate(url: str, model: str, token: int, timeout: float) -> dict[str, Any]:
    """One token, for real. `model` "" takes the model that the server lists."""
    start = time.monotonic()
    try:
        name = model or served_model(url) or ""
        body = {"model": name, "prompt": [token] * 4, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
        status, raw = fetch(url + "/v1/completions", body, timeout)
        if status != 200:
            return {"ok": False, "status": status, "detail": raw[:300].decode(errors="replace")}
        answer = json.loads(raw)
        usage = answer.get("usage") or {}
        if not answer.get("choices") or usage.get("completion_tokens") != 1:
            return {"ok": False, "status": status, "detail": f"not one token: usage {usage}"}
    except (OSError, ValueError) as e:
        return {"ok": False, "status": None, "detail": f"{type(e).__name__}: {e}"[:300]}
    return {"ok": True, "model": name, "ms": round((time.monotonic() - start) * 1e3, 1)}


def client() -> dict[str, Any]:
    """Python and aiohttp of this interpreter."""
    try:
        import aiohttp
    except ImportError:
        return {"ok": False, "python": sys.version.split()[0], "detail": "aiohttp is not installed"}
    return {"ok": True, "python": sys.version.split()[0], "aiohttp": aiohttp.__version__}


def main(argv: list[str]) -> int:
    if len(argv) >= 3 and argv[0] == "get":
        answer = get(argv[1], argv[2:])
    elif len(argv) >= 4 and argv[0] == "generate":
        answer = generate(argv[1], argv[2], int(argv[3]), float(argv[4]) if len(argv) > 4 else 30.0)
    elif argv == ["client"]:
        answer = client()
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
