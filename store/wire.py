"""A query's answer as bytes and back, exactly: the same Python values and type names on both sides.

Pickle, because DuckDB's values are of many kinds (64-bit and larger integers, NaN, decimals, dates, UUIDs, nested
lists); read back with an unpickler that knows those few value classes and nothing else.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from store.errors import OwnerGone, QueryCancelled, Refused, StoreError

_CLASSES = frozenset((
    ("datetime", "date"), ("datetime", "datetime"), ("datetime", "time"), ("datetime", "timedelta"),
    ("datetime", "timezone"), ("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID"),
))  # fmt: skip
_ERRORS: dict[str, type[StoreError]] = {c.__name__: c for c in (StoreError, QueryCancelled, Refused, OwnerGone)}


class _ValuesOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is no value of a query")
        return super().find_class(module, name)


def pack_answer(columns: tuple[str, ...], types: tuple[str, ...], rows: list[tuple[Any, ...]]) -> bytes:
    """An answer as bytes."""
    return pickle.dumps((columns, types, rows), protocol=5)


def pack_error(error: StoreError) -> bytes:
    """An error as bytes: its class survives the way."""
    return pickle.dumps((type(error).__name__, str(error)), protocol=5)


def unpack(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[Any, ...]]]:
    """(columns, types, rows). Raises the packed error, or StoreError if the bytes are none of ours."""
    try:
        content = _ValuesOnly(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, ValueError, TypeError) as e:
        raise StoreError(f"the owner's answer cannot be read: {e}") from e
    match content:
        case (str(kind), str(text)):
            raise _ERRORS.get(kind, StoreError)(text)
        case (tuple(columns), tuple(types), list(rows)):
            return columns, types, rows
    raise StoreError("the owner's answer cannot be read")
