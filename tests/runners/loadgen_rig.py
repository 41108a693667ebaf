"""A server that misbehaves on purpose, and loadgen run against it as the process that a node would run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import runners.payload

SCRIPT = Path(runners.payload.__file__).with_name("loadgen.py")
Json = dict[str, Any]


class Stream:
    """One HTTP exchange seen from the server: the decoded body, and the means to answer it well or badly."""

    def __init__(self, number: int, headers: str, body: Json, writer: asyncio.StreamWriter) -> None:
        self.number, self.headers, self.body, self._writer = number, headers, body, writer

    async def begin(self, status: int = 200, kind: str = "text/event-stream", extra: str = "") -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n{extra}\r\n"
        self._writer.write(head.encode())
        await self._writer.drain()

    async def raw(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()

    async def event(self, event: Json | str) -> None:
        await self.raw(b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n")

    async def tokens(self, count: int, *, usage: bool = True, pause: float = 0.001, text: str = "x") -> None:
        """`count` chunks of one token, with running usage if asked for it, the last one with its finish reason."""
        for index in range(1, count + 1):
            chunk = completion(text, "length" if index == count else None)
            if usage:
                chunk["usage"] = counts(len(self.body.get("prompt", [])), index)
            await self.event(chunk)
            await asyncio.sleep(pause)

    async def end(self, final: Json | None = None) -> None:
        if final is not None:
            await self.event({"choices": [], "usage": final})
        await self.event("[DONE]")
        await self.close()

    async def close(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def hang_up(self) -> None:
        """Close the connection in good order."""
        self._writer.close()

    def drop(self) -> None:
        """Reset the connection in the middle of whatever was said."""
        self._writer.transport.abort()

    async def answer(self, count: int | None = None) -> None:
        """A whole, well-behaved generation."""
        count = count or self.body["max_tokens"]
        await self.begin()
        await self.tokens(count)
        await self.end(counts(len(self.body["prompt"]), count))

    async def refuse(self, status: int, body: str) -> None:
        data = body.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        await self._writer.drain()


Behaviour = Callable[[Stream], Awaitable[None]]


def completion(text: str, finish: str | None = None, **more: Any) -> Json:
    return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}


def chat(delta: Json, finish: str | None = None) -> Json:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def counts(prompt: int, completion: int, **more: Any) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


@contextlib.asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[tuple[str, list[Stream]]]:
    """(URL, the exchanges so far) of a server on loopback that answers every request as `behaviour` says."""
    seen: list[Stream] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.transport.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length")
                )
                stream = Stream(len(seen), head, json.loads(await reader.readexactly(length)), writer)
                seen.append(stream)
                await behaviour(stream)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 24)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", seen
    finally:
        server.close()
        for stream in seen:
            stream.drop()


@dataclass
class Output:
    """What one run of loadgen left behind."""

    status: int
    stderr: str
    raw: bytes
    lines: list[Json] = field(default_factory=list)

    def of(self, t: str, **wanted: Any) -> list[Json]:
        return [
            line for line in self.lines if line["t"] == t and all(line[key] == value for key, value in wanted.items())
        ]

    def one(self, t: str) -> Json:
        (line,) = self.of(t)
        return line

    @property
    def load(self) -> list[Json]:
        return self.of("done", kind="load")

    @property
    def end(self) -> Json:
        return self.one("end")


def spec(url: str, **changes: Any) -> Json:
    base: Json = {"url": url, "model": "m", "isl": 8, "osl": 4, "concurrency": 1, "requests": 2, "budget_s": 20}
    return {**base, **changes}


async def start(wanted: Json, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        "--spec",
        "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        limit=1 << 24,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(wanted).encode())
    process.stdin.close()
    return process


async def finish(process: asyncio.subprocess.Process, before: bytes = b"") -> Output:
    out, err = await asyncio.wait_for(process.communicate(), 40)
    assert process.returncode is not None
    raw = before + out
    return Output(process.returncode, err.decode(), raw, [json.loads(line) for line in raw.splitlines()])


async def run(wanted: Json, env: dict[str, str] | None = None) -> Output:
    return await finish(await start(wanted, env))


async def against(behaviour: Behaviour, **changes: Any) -> Output:
    """Loadgen's output over a server with that behaviour; two requests of four tokens unless told otherwise."""
    async with serving(behaviour) as (url, _):
        return await run(spec(url, **changes))
