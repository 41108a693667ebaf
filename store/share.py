"""Sharing a store over DuckDB's Quack protocol: the owner serves on loopback, watchers attach.

Everything a watcher sends is one SELECT, executed in the owner with `quack_query_by_name`. It is either a query that
the guard lets pass, or exactly one call of a function of the owner:

    SELECT submit_order('JSON')      what an operator wants done; only with the token of role `order`
    SELECT ask('ID', 'SQL')          a guarded query on a cursor that can be cancelled and has a time limit
    SELECT stop_asking('ID')         cancels it

Quack 1.5 can neither cancel nor limit what it runs itself, hence `ask`, which is what `Remote` uses.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from store.database import Query, Store, Table
from store.errors import OwnerGone, QueryCancelled, Refused, StoreError
from store.guard import Guard
from store.queries import literal
from store.wire import pack_answer, pack_error, unpack

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

Role = Literal["read", "order"]
OnOrder = Callable[[str, str], str]

HOST = "127.0.0.1"
QUERY_LIMIT_S = 25.0
"""The longest a watcher's query may run; below the HTTP client's own 30 s."""
_OWNER_CALLS: Mapping[str, frozenset[str]] = {
    "submit_order": frozenset({"order"}),
    "ask": frozenset({"read", "order"}),
    "stop_asking": frozenset({"read", "order"}),
}
_SESSIONS_KEPT = 4096


def load_quack(connection: duckdb.DuckDBPyConnection) -> None:
    """Load Quack and what it needs from the installed wheels; nothing is looked up on a network. Raises StoreError."""
    import duckdb

    for name in ("httpfs", "quack"):
        spec = find_spec(f"duckdb_extension_{name}")
        folder = Path(spec.origin).parent if spec and spec.origin else None
        file = next(folder.rglob(f"{name}.duckdb_extension"), None) if folder else None
        if file is None:
            raise StoreError(f"the package duckdb-extension-{name} is not installed: sharing needs it")
        try:
            connection.load_extension(str(file))
        except duckdb.Error as e:
            raise StoreError(f"cannot load {file.name}: {e}") from e


def read_token(path: Path) -> str:
    """The token in a token file. Raises StoreError."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise StoreError(f"cannot read the token file {path}: {e}") from e


def make_token(path: Path) -> str:
    """The token in `path`, made if there is none; the file is 0600. Raises StoreError if others may read it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            raise StoreError(f"others may read the token file {path}; delete it and start again") from None
        if token := read_token(path):
            return token
        path.unlink()  # its maker died before it wrote: an empty token would let everybody in
        return make_token(path)
    with os.fdopen(descriptor, "w") as f:
        token = secrets.token_urlsafe(32)
        f.write(token + "\n")
    return token


class Server:
    """A store being served; made by `serve`."""

    def __init__(self, store: Store, port: int, tokens: Mapping[str, Role], on_order: OnOrder) -> None:
        self.store = store
        self.port = port
        self._tokens = tokens
        self._on_order = on_order
        self._guard = Guard()
        self._lock = threading.Lock()
        self._roles: OrderedDict[str, Role] = OrderedDict()
        self._asked: dict[str, Query] = {}
        self.last_seen = time.monotonic()
        """When somebody last asked anything: an owner that nobody watches may end."""
        self.refused = 0
        """Queries and sign-ins turned away."""

    @property
    def url(self) -> str:
        """What `Remote.connect` takes."""
        return f"quack:{HOST}:{self.port}"

    def start(self) -> None:
        """Register the functions, take external access away and listen. Raises StoreError."""
        import duckdb

        connection = self.store.connection
        text = "VARCHAR"
        for name, function, arity, answer in (
            ("twinrail_sign_in", self._sign_in, 3, "BOOLEAN"),
            ("twinrail_may_run", self._may_run, 2, "BOOLEAN"),
            ("submit_order", self._submit_order, 1, text),
            ("ask", self._ask, 2, "BLOB"),
            ("stop_asking", self._stop_asking, 1, "BOOLEAN"),
        ):
            connection.create_function(name, function, [text] * arity, answer, side_effects=True)
        load_quack(connection)
        cursor = connection.cursor()
        try:
            cursor.execute("SET GLOBAL quack_authentication_function = 'twinrail_sign_in'")
            cursor.execute("SET GLOBAL quack_authorization_function = 'twinrail_may_run'")
            cursor.execute("SET GLOBAL python_enable_replacements = false")
            # Export and import pass their files through this one folder; queries cannot name files at all.
            cursor.execute(f"SET GLOBAL allowed_directories = [{literal(str(self.store.exchange))}]")
            cursor.execute("SET GLOBAL enable_external_access = false")
            cursor.execute(f"FROM quack_serve({literal(self.url)}, token := {literal(secrets.token_urlsafe(32))})")
        except duckdb.Error as e:
            raise StoreError(f"cannot serve on {self.url}: {e}") from e
        finally:
            cursor.close()

    def stop(self) -> None:
        """Cancel what is asked and stop listening. The store stays open, without external access."""
        with self._lock:
            asked = list(self._asked.values())
        for query in asked:
            query.cancel()
        cursor = self.store.connection.cursor()
        cursor.execute(f"FROM quack_stop({literal(self.url)})")
        cursor.close()

    def _sign_in(self, session: str, token: str, _server_token: str) -> bool:
        for known, role in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                with self._lock:
                    self._roles[session] = role
                    while len(self._roles) > _SESSIONS_KEPT:
                        self._roles.popitem(last=False)
                return True
        self.refused += 1
        return False

    def _may_run(self, session: str, sql: str) -> bool:
        self.last_seen = time.monotonic()
        with self._lock:
            role = self._roles.get(session)
        if role is None:
            return False
        try:
            call = self._guard.owner_call(sql)
            if call and call[0] in _OWNER_CALLS:
                allowed = role in _OWNER_CALLS[call[0]]
            else:
                self._guard.check(sql)
                allowed = True
        except StoreError as e:
            log.info("%s", e)
            allowed = False
        self.refused += not allowed
        return allowed

    def _submit_order(self, order: str) -> str:
        return self._on_order(order, "order")

    def _ask(self, name: str, sql: str) -> bytes:
        query = Query()
        with self._lock:
            self._asked[name] = query
        try:
            self._guard.check(sql)
            answer = self.store.query(sql, handle=query, timeout_s=QUERY_LIMIT_S)
            return pack_answer(answer.columns, answer.types, answer.rows)
        except StoreError as e:
            return pack_error(e)
        finally:
            with self._lock:
                self._asked.pop(name, None)

    def _stop_asking(self, name: str) -> bool:
        with self._lock:
            query = self._asked.get(name)
        if query is None:
            return False
        query.cancel()
        return True


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def serve(store: Store, *, token_files: Mapping[Role, Path], on_order: OnOrder, port: int = 0) -> Server:
    """Serve an open store on loopback. `port` 0 takes a free one. Raises StoreError.

    `token_files` maps a role to the file that holds its token, made (0600) if it is not there. `on_order(json, role)`
    is called in a DuckDB thread with what a watcher submits, to be treated as hostile, and returns the text to answer.
    From here on the store's connections cannot reach files or the network, in this process too.
    """
    tokens: dict[str, Role] = {make_token(path): role for role, path in token_files.items()}
    server = Server(store, port or free_port(), tokens, on_order)
    server.start()
    return server


class Remote:
    """A watcher's view of a served store. Any thread may query; sessions are opened as they are needed."""

    def __init__(self, url: str, token: str | Path) -> None:
        import duckdb

        self.url = url
        self._token = token
        self._connection = duckdb.connect(config={"autoinstall_known_extensions": False, "threads": 1})
        load_quack(self._connection)
        self._connection.execute("SET httpfs_connection_caching = true; SET http_retries = 0")
        self._lock = threading.Lock()
        self._free: list[str] = []
        self._made = 0

    @classmethod
    def connect(cls, url: str | int, token: str | Path) -> Remote:
        """Attach to an owner by URL or loopback port, with a token or the file that holds it.

        Raises OwnerGone if nobody serves there, StoreError if the token is not accepted.
        """
        remote = cls(f"quack:{HOST}:{url}" if isinstance(url, int) else url, token)
        with remote._session():
            return remote

    def query(self, sql: str, *, handle: Query | None = None) -> Table:
        """Run one SELECT in the owner. Raises Refused, QueryCancelled, OwnerGone, StoreError."""
        handle = handle or Query()
        name = secrets.token_hex(8)
        statement = f"SELECT ask({literal(name)}, {literal(sql)})"
        with handle.cancelling(lambda: self._stop_asking(name)):
            answer = self._send(statement)
        if not isinstance(answer, bytes):
            raise StoreError("the owner's answer cannot be read")
        return Table(*unpack(answer))

    def submit_order(self, order: str) -> str:
        """Hand an order (JSON) to the owner and return its answer. Raises StoreError, OwnerGone."""
        return str(self._send(f"SELECT submit_order({literal(order)})"))

    def close(self) -> None:
        """Detach. Idempotent."""
        self._connection.close()

    def _stop_asking(self, name: str) -> None:
        try:
            self._send(f"SELECT stop_asking({literal(name)})")
        except OwnerGone as e:
            log.debug("nothing to cancel: %s", e)

    @contextmanager
    def _session(self) -> Iterator[str]:
        """An attached session that nobody else uses meanwhile: the owner runs one query of a session at a time."""
        with self._lock:
            session = self._free.pop() if self._free else None
            self._made += session is None
            number = self._made
        if session is None:
            session = f"owner{number}"
            self._attach(session)
        try:
            yield session
        finally:
            with self._lock:
                self._free.append(session)

    def _attach(self, session: str) -> None:
        token = read_token(self._token) if isinstance(self._token, Path) else self._token
        self._run(f"ATTACH {literal(self.url)} AS {session} (TYPE quack, TOKEN {literal(token)})")

    def _send(self, statement: str) -> object:
        with self._session() as session:
            text = f"FROM quack_query_by_name({literal(session)}, {literal(statement)})"
            try:
                rows = self._run(text)
            except _SessionLost:
                # Another owner answers here now: it has run nothing of ours, so asking again is safe.
                self._run(f"DETACH DATABASE IF EXISTS {session}")
                self._attach(session)
                rows = self._run(text)
        return rows[0][0]

    def _run(self, sql: str) -> list[tuple[object, ...]]:
        import duckdb

        try:
            cursor = self._connection.cursor()
            try:
                return cursor.execute(sql).fetchall()
            finally:
                cursor.close()
        except duckdb.InterruptException as e:
            raise QueryCancelled("the query was cancelled") from e
        except duckdb.Error as e:
            text = str(e)
            if "Invalid connection id" in text:
                raise _SessionLost(text) from e
            if "Authorization failed" in text:
                raise Refused("refused: this token does not allow it") from e
            if isinstance(e, duckdb.IOException):
                raise OwnerGone(f"the owner at {self.url} does not answer") from e
            raise StoreError(text.split("\n")[0]) from e


class _SessionLost(OwnerGone):
    """The owner does not know our session: it is a new one."""
