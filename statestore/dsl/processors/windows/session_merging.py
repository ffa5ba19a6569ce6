"""Which records and sessions become one: one rule for single records and columns, over plain tuples."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from statestore.dsl.aggregations import Aggregation
from statestore.dsl.windows import SessionWindows

Session: TypeAlias = tuple[int, int, Any, Any]
"""End and start in ms, aggregate, and headers."""
SessionRecord: TypeAlias = tuple[int, int, Any, Any, int, int]
"""The index of its key, timestamp in ms, value, headers, latest end that has closed by it, and event time."""
SessionChange: TypeAlias = tuple[int, int, int, Any, Any]
"""The row of its record, start and end in ms, the new aggregate and the old one; None for none."""


class MergedRecords(NamedTuple):
    """What records change of sessions."""

    changes: list[SessionChange]
    headers: list[Any]
    """The headers of all changes of each record; None for late records."""
    late: list[int]
    """The rows of records that came too late."""


class SessionMerging:
    """Merges records with the sessions that they belong to, in order.

    As in the store, a session is visible until the latest stored end is `retention_ms` past its own. A record within a
    session makes one change, with the old aggregate, or with `removes_kept` two: a deletion and a new session. A
    session of one moment is never deleted first; with `tells_each`, its old aggregate is left out, as in Kafka.
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
        assert aggregation.merger is not None  # streams by session require one
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
        """Return what records change of the sessions of their keys, which must be sorted; changes these lists.

        `merge_headers` merges two lists of headers, of which the first may be None. `stored_ms` is the latest end that
        was stored; -1 for none.
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
            if aggregate is not None:
                insort(of_key, (end_ms, start_ms, aggregate, headers))
            # A session of an earlier shard that was ahead may end after the present time.
            hidden_ms = max(hidden_ms, min(end_ms, seen_ms) - self._retention_ms)
        return made
