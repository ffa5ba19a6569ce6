"""A session window by hand, as a processor keeps it."""

from __future__ import annotations

from typing import Any

from statestore import AggregationWithHeaders, Record, Windowed


def add_to_session(sessions: Any, record: Record[str, Any], amount: int, gap_ms: int) -> None:
    """Add an amount to the session of a record; sessions that it brings together become one."""
    first_ms = last_ms = record.timestamp_ms
    with sessions.find_sessions(record.key, first_ms - gap_ms, last_ms + gap_ms) as overlapping:
        merged = list(overlapping)
    for session, held in merged:
        first_ms, last_ms = min(first_ms, session.start_ms), max(last_ms, session.end_ms)
        amount += held.aggregation
        sessions.remove(session)
    sessions.put(Windowed(record.key, first_ms, last_ms), AggregationWithHeaders(amount, record.headers))
