"""What can go wrong with the store, as its callers see it."""

from __future__ import annotations


class StoreError(Exception):
    """The store refused or failed; the message says what to do. Never a DuckDB exception."""


class QueryError(StoreError):
    """The SQL itself is wrong: trying again cannot help."""


class ResultsError(StoreError):
    """The results folder of a run cannot be written; its figures are in the store all the same."""


class StoreBusy(StoreError):  # noqa: N818  # the state of the file
    """Another process has the store open."""


class QueryCancelled(StoreError):  # noqa: N818  # what happened, not a fault
    """The query was cancelled or ran past its time limit."""


class OwnerGone(StoreError):  # noqa: N818  # the state that a watcher shows
    """The owner that served the store is dead or restarting."""


class Refused(StoreError):  # noqa: N818  # the guard's verdict
    """The query may not be run by a watcher; the message names what is not allowed."""
