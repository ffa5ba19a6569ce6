"""Which records and sessions become one: one rule for records by themselves and in columns, over plain tuples."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from statestore.dsl.aggregations import Aggregation
from statestore.dsl.windows import SessionWindows

Session: TypeAlias = tuple[int, int, Any, Any]
"""End and start in ms, aggregate, and headers."""
SessionRecord: TypeAlias = tuple[int, int, Any, Any, int, int]
"""The place of its key, timestamp in ms, value, headers, the latest end that has closed by it, and what time it is."""
SessionChange: TypeAlias = tuple[int, int, int, Any, Any]
"""The row of the record that made it, start and end in ms, what the session is, and what it was; None is nothing."""


class MergedRecords(NamedTuple):
    """What records make of sessions."""

    changes: list[SessionChange]
    headers: list[Any]
    """Of all changes of each record; None of late ones."""
    late: list[int]
    """The rows of records that came too late."""


class SessionMerging:
    """Merges records with the sessions that they belong to, in order.

    A session is seen until the latest end that was stored is `retention_ms` past its own, as the store shows it.
    Changes of a session that a record is within are one, told with what it was, or if it `removes_kept` ones two: that
    it is gone, and what is made anew. A session of a moment is never removed before; where it `tells_each` change, what
    it was is not told, as in Kafka.
    """

    def __init__(
        self,
        windows: SessionWindows,
        aggregation: Aggregation,
        *,
        retention_ms: int,
        tells_each: bool,
        removes_kept: bool,
    ) -> None:
        assert aggregation.merger is not None  # a stream by session asks for one
        self._gap_ms = windows.inactivity_gap_ms
        self._initializer, self._aggregator, self._merger = (
            aggregation.initializer,
            aggregation.aggregator,
            aggregation.merger,
        )
        self._retention_ms = retention_ms
        self._tells_each, self._removes_kept = tells_each, removes_kept

    def merge(
        self,
        records: Iterable[SessionRecord],
        keys: Sequence[Any],
        sessions: Sequence[list[Session]],
        merge_headers: Callable[[Any, Any], Any],
        stored_ms: int,
    ) -> MergedRecords:
        """Return what records make of the sessions of their keys, which are in order; these lists are changed.

        `merge_headers` makes one of two headers, of which the first may be None. `stored_ms` is the latest end that was
        stored; -1 for none.
        """
        initializer, aggregator, merger = self._initializer, self._aggregator, self._merger
        gap_ms, tells_each, removes_kept = self._gap_ms, self._tells_each, self._removes_kept
        hidden_ms = stored_ms - self._retention_ms
        made = MergedRecords([], [], [])
        changes, headers_of, late = made
        for row, (place, time_ms, value, coming, closed_ms, seen_ms) in enumerate(records):
            key, of_key, start_ms, end_ms, first = keys[place], sessions[place], time_ms, time_ms, 0
            near: list[Session] = []
            if of_key:
                if of_key[0][0] <= hidden_ms:
                    del of_key[: bisect_left(of_key, (hidden_ms + 1,))]
                first, latest_ms = bisect_left(of_key, (time_ms - gap_ms,)), time_ms + gap_ms
                near = [session for session in of_key[first:] if session[1] <= latest_ms]
                if near:
                    start_ms = min(time_ms, min(session[1] for session in near))
                    end_ms = max(time_ms, near[-1][0])
            if end_ms <= closed_ms:
                headers_of.append(None)
                late.append(row)
                continue
            aggregate, headers, told = initializer(), None, None
            for session in near:
                aggregate = merger(key, aggregate, session[2])
                headers = session[3] if headers is None else merge_headers(headers, session[3])
            aggregate = aggregator(key, value, aggregate)
            headers = merge_headers(headers, coming)
            headers_of.append(headers)
            for session in near:
                if (session[1], session[0]) == (start_ms, end_ms) and (start_ms == end_ms or not removes_kept):
                    told = None if tells_each else session[2]
                else:
                    changes.append((row, session[1], session[0], None, session[2]))
            changes.append((row, start_ms, end_ms, aggregate, told))
            if near:
                of_key[first:] = [session for session in of_key[first:] if session[1] > latest_ms]
            insort(of_key, (end_ms, start_ms, aggregate, headers))
            # A session of a shard that was ahead may end later than it is.
            hidden_ms = max(hidden_ms, min(end_ms, seen_ms) - self._retention_ms)
        return made
