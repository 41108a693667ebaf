"""Real sim.py processes for the tests, and a streaming client that keeps every chunk with its time."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

SIM = Path(__file__).parents[2] / "runners" / "payload" / "sim.py"
PYTHON = (os.environ.get("SIM_PYTHON", sys.executable),)  # sim.py has to run on older ones than the tests do
FAST = ("--clock-scale", "20", "--load-s", "1", "--noise", "0")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Sim:
    """One sim process (one node) with its log in a file."""

    def __init__(self, folder: Path, *args: str, port: int = 0, python: tuple[str, ...] = PYTHON) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.path = folder / f"sim-{self.port}-{time.monotonic_ns()}.log"
        argv = [*python, str(SIM), "--host", "127.0.0.1", "--port", str(self.port), *FAST, *args]
        with self.path.open("wb") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        return self.path.read_text()

    def ready(self, limit: float = 15.0) -> "Sim":
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"sim ended with {self.process.returncode}:\n{self.log}")
            try:
                if self.get("/health")[0] == 200:
                    return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"not ready after {limit} s:\n{self.log}")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def get(self, path: str) -> tuple[int, str]:
        return self.ask("GET", path)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        status, text = self.ask("POST", path, body)
        return status, json.loads(text) if text.startswith("{") else text

    def metric(self, name: str, **labels: str) -> float:
        """Sum over the samples of that name whose labels match; fails when there is none."""
        return metric(self.get("/metrics")[1], name, **labels)

    def wait(self, limit: float = 10.0) -> int:
        return self.process.wait(limit)

    def until(self, pattern: str, limit: float = 10.0) -> re.Match[str]:
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if found := re.search(pattern, self.log, re.MULTILINE):
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in\n{self.log}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)


def metric(text: str, name: str, **labels: str) -> float:
    hits = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert hits, f"no {name} {labels}"
    return sum(hits)


class Farm:
    """Starts sims and ends them all, whatever the test did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sims: list[Sim] = []

    def __call__(self, *args: str, port: int = 0, python: tuple[str, ...] = PYTHON) -> Sim:
        self.sims.append(Sim(self.folder, *args, port=port, python=python))
        return self.sims[-1]

    def two(self, *args: str) -> tuple[Sim, Sim]:
        """Two nodes of eight ranks."""
        meet = ("--tp", "16", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}", *args)
        return self(*meet), self(*meet, "--node-rank", "1")

    def close(self) -> None:
        for sim in self.sims:
            sim.close()


def farm(folder: Path) -> Iterator[Farm]:
    """Body of a pytest fixture."""
    made = Farm(folder)
    yield made
    made.close()


@dataclass
class Answer:
    """What a streaming client saw of one request; times are monotonic seconds."""

    status: int = 0
    sent: float = 0.0
    chunks: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    done: bool = False
    broken: bool = False

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.chunks[-1]["usage"]
        return usage

    @property
    def tokens(self) -> int:
        return int(self.usage["completion_tokens"])

    @property
    def end(self) -> float:
        return self.times[-1]


async def stream(session: aiohttp.ClientSession, url: str, path: str = "/v1/completions", **body: Any) -> Answer:
    answer = Answer(sent=time.monotonic())
    asked = {"stream": True, "ignore_eos": True, "stream_options": {"include_usage": True}, **body}
    try:
        async with session.post(url + path, json=asked) as response:
            answer.status = response.status
            async for raw in response.content:
                line = raw.strip()
                if line == b"data: [DONE]":
                    answer.done = True
                elif line.startswith(b"data: "):
                    answer.chunks.append(json.loads(line[6:]))
                    answer.times.append(time.monotonic())
    except aiohttp.ClientError:
        answer.broken = True
    return answer


async def load(url: str, concurrency: int, requests: int, isl: int, osl: int, **body: Any) -> list[Answer]:
    """Closed loop: `concurrency` clients send `requests` unique prompts of `isl` token ids."""
    numbers = iter(range(requests))
    answers: list[Answer] = []

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            prompt = [(number * 7919 + i * 31) % 30011 for i in range(isl)]
            answers.append(await stream(session, url, prompt=prompt, max_tokens=osl, **body))

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        await asyncio.gather(*(client(session) for _ in range(concurrency)))
    return answers
