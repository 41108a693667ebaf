"""What a baseline must not have, as flags of an attempt: whoever compares figures sees them beside the figures.

speculation    the engine drafted tokens, or says that it is set up to
cache_warm     more prompt tokens than asked for came from the prefix cache, by the engine's own count
no_warmup      nothing was sent before the measured requests
few_repeats    the run holds fewer than three attempts of this case
profiled       a profiler ran on the server's nodes meanwhile
"""

from __future__ import annotations

import orjson

from runners.flows.life import LifeHandle
from runners.spec import Case
from store.database import Store
from store.queries import literal
from store.records import Attempt

REPEATS = 3
CACHE_SHARE = 0.01
# What engines call it in their own report of themselves (SGLang /server_info, vLLM /server_info), and on command lines.
_SPECULATION = ("speculative_algorithm", "speculative_config", "speculative-algorithm", "speculative-config")


def flags_of(store: Store, attempt: Attempt, case: Case, handle: LifeHandle) -> list[str]:
    """Which of the rules this attempt breaks, in the order above."""
    checks = {
        "speculation": _speculates(store, attempt, handle),
        "cache_warm": _cache_share(store, attempt) > case.prefix_share + CACHE_SHARE,
        "no_warmup": case.warmup == 0,
        "few_repeats": _repeats(store, attempt) < REPEATS,
        "profiled": _profiled(store, attempt),
    }
    return [name for name, broken in checks.items() if broken]


def _speculates(store: Store, attempt: Attempt, handle: LifeHandle) -> bool:
    if any(word.lstrip("-").partition("=")[0] in _SPECULATION for word in handle.dep.flags):
        return True
    names = " or ".join(f"name like '%.{name}'" for name in _SPECULATION[:2])
    told = store.query(
        f"select count(*) from variables where life_id = {literal(attempt.life_id)} and "
        f"(({names}) and lower(coalesce(value, 'none')) not in ('none', 'null', '') "
        "or regexp_matches(value, 'speculative_config=[^N]'))"  # vLLM tells its configuration as one text
    ).rows[0][0]
    drafted = store.query(
        f"select max(spec_drafts_total) from engine_samples where life_id = {literal(attempt.life_id)}"
    ).rows[0][0]
    return bool(told or drafted)


def _cache_share(store: Store, attempt: Attempt) -> float:
    """Share of prompt tokens that the engine took from its prefix cache while the measured requests ran; 0 unknown.

    A tool whose warm-up sends the first prompt again and again has that prompt sent unmeasured: its hit is known.
    """
    rows = store.query(
        f"""
        with w as (select min(sent_wall_ns) as a, max(sent_wall_ns + coalesce(end_ns, sent_ns) - sent_ns) as b
                   from requests where attempt_id = {literal(attempt.attempt_id)} and measured),
        f as (select coalesce(sum(prompt_tokens), 0) as known from requests
              where attempt_id = {literal(attempt.attempt_id)} and kind = 'filler' and phase = 'load'),
        s as (select coalesce(e.dp_rank, -1) as rank,
                     coalesce(max(prefix_hits_total) - min(prefix_hits_total),
                              max(cached_tokens_total) - min(cached_tokens_total)) as hits,
                     coalesce(max(prefix_queries_total) - min(prefix_queries_total),
                              max(prompt_tokens_total) - min(prompt_tokens_total)) as queries
              from engine_samples e, w
              where coalesce(e.source, '') <> 'log' and e.life_id = {literal(attempt.life_id)}
                and e.wall_ns between w.a and w.b
              group by all)
        select (sum(hits) - any_value(known)) / nullif(sum(queries), 0) from s, f
        """
    ).rows
    return float(rows[0][0] or 0.0)


def _repeats(store: Store, attempt: Attempt) -> int:
    """How often the run measures this case: as it was asked, else as many attempts as it holds."""
    asked = store.query(f"select spec from runs where run_id = {literal(attempt.run_id)}").rows
    options = orjson.loads(asked[0][0]) if asked and asked[0][0] else {}
    if isinstance(options.get("repeats"), int):
        return int(options["repeats"])
    return int(
        store.query(
            f"select count(*) from attempts where run_id = {literal(attempt.run_id)} and state <> 'void' "
            f"and case_name = {literal(attempt.case_name)}"
        ).rows[0][0]
    )


def _profiled(store: Store, attempt: Attempt) -> bool:
    if attempt.started_wall_ns is None:
        return False
    rows = store.query(
        f"select count(*) from jobs where kind = 'profiler' and life_id = {literal(attempt.life_id)} "
        f"and coalesce(ended_wall_ns, {attempt.started_wall_ns}) >= {attempt.started_wall_ns}"
    ).rows
    return bool(rows[0][0])
