"""A thread of the server that fills a core and holds the GPUs up."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class PinnedThread(BaseRule):
    name = "pinned_thread"
    flag = "pinned_thread"
    source = "schedstat of the threads"
    next_step = "host-bound: CUDA graphs, asynchronous scheduling, more tokenizer or front end processes, CPU binding"

    def title(self, row: Row) -> str:
        return f"{row['role']} thread {row['thread']} fills a core"

    def detail(self, row: Row) -> str:
        return (
            f"{number(row['core_pct'])} % of a core (tid in {row['subject']}, {row['process']}), "
            f"GPUs of the node {number(row['gpu_util_pct'])} % busy"
        )
