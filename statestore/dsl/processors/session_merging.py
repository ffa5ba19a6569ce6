"""Which records and sessions become one: what of sessions in columns is done record by record, over plain tuples."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from statestore.dsl.aggregations import Aggregation
from statestore.dsl.windows import SessionWindows

Session: TypeAlias = tuple[int, int, Any, Any]
"""End and start in ms, aggregate, and headers."""
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

    A session is seen until the latest end that was stored is `retention_ms` past its own, as the store shows it. Unless
    it `tells_each` change, a session that a record is within is changed, and not removed and made again.
    """

    def __init__(
        self,
        windows: SessionWindows,
        aggregation: Aggregation,
        *,
        retention_ms: int,
        tells_each: bool,
    ) -> None:
        assert aggregation.merger is not None  # a stream by session asks for one
        self._gap_ms, self._grace_ms = windows.inactivity_gap_ms, windows.grace_ms
        self._initializer, self._aggregator, self._merger = (
            aggregation.initializer,
            aggregation.aggregator,
            aggregation.merger,
        )
        self._retention_ms = retention_ms
        self._tells_each = tells_each

    def merge(
        self,
        records: Iterable[tuple[int, int, Any, Any]],
        keys: Sequence[Any],
        sessions: Sequence[list[Session]],
        merge_headers: Callable[[Any, Any], Any],
        observed_ms: int,
        stored_ms: int,
    ) -> MergedRecords:
        """Return what records make of the sessions of their keys, which are in order; these lists are changed.

        Each record is the place of its key, its timestamp in ms, value and headers. `merge_headers` makes one of two
        headers, of which the first may be None. `observed_ms` is the latest timestamp before the records, `stored_ms`
        the latest end that was stored; -1 is none.
        """
        initializer, aggregator, merger = self._initializer, self._aggregator, self._merger
        gap_ms, open_ms, tells_each = self._gap_ms, self._gap_ms + self._grace_ms, self._tells_each
        first_visible_ms = stored_ms - self._retention_ms + 1
        made = MergedRecords([], [], [])
        changes, headers_of, late = made
        for row, (place, time_ms, value, coming) in enumerate(records):
            if time_ms > observed_ms:
                observed_ms = time_ms
            key, of_key, start_ms, end_ms, first = keys[place], sessions[place], time_ms, time_ms, 0
            near: list[Session] = []
            if of_key:
                if of_key[0][0] < first_visible_ms:
                    del of_key[: bisect_left(of_key, (first_visible_ms,))]
                first, latest_ms = bisect_left(of_key, (time_ms - gap_ms,)), time_ms + gap_ms
                near = [session for session in of_key[first:] if session[1] <= latest_ms]
                if near:
                    start_ms = min(time_ms, min(session[1] for session in near))
                    end_ms = max(time_ms, near[-1][0])
            if end_ms < observed_ms - open_ms:
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
                # One of a moment is not removed before it is kept. Where not each change is told, none is.
                if (session[1], session[0]) == (start_ms, end_ms) and (start_ms == end_ms or not tells_each):
                    told = None if tells_each else session[2]
                else:
                    changes.append((row, session[1], session[0], None, session[2]))
            changes.append((row, start_ms, end_ms, aggregate, told))
            if near:
                of_key[first:] = [session for session in of_key[first:] if session[1] > latest_ms]
            insort(of_key, (end_ms, start_ms, aggregate, headers))
            if end_ms - self._retention_ms >= first_visible_ms:
                first_visible_ms = end_ms - self._retention_ms + 1
        return made
