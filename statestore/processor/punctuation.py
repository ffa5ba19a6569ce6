"""Punctuation: calls that a processor asks for at intervals of time. Source: Kafka Streams' PunctuationQueue.

A processor lives for one micro-batch, but its schedules live as long as the topology: each `init` makes them again, and
each commit records when they are due next. The order in which a node's `init` makes its schedules tells them apart, so
only `init` can make them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from statestore.errors import TopologyError
from statestore.recovery.commit.pointer_fields import RecordedPunctuation, RecordedPunctuations

LAST_MS = 2**63 - 1
"""The latest timestamp that Kafka has."""
NEVER_MS = LAST_MS + 1


class PunctuationType(Enum):
    """Which clock a schedule follows. Source: Kafka's PunctuationType."""

    STREAM_TIME = "stream-time"
    WALL_CLOCK_TIME = "wall-clock-time"


Punctuator = Callable[[int], None]
"""Called with the time on the schedule's clock, in milliseconds since the epoch."""


def stream_time_intervals_ms(recorded: RecordedPunctuations) -> list[int]:
    """Return the intervals of all schedules by stream time that are not cancelled."""
    schedules = (each for of_node in recorded.values() for each in of_node if each.next_ms is not None)
    return [each.interval_ms for each in schedules if each.type == PunctuationType.STREAM_TIME.value]


class Cancellable:
    """A schedule of a punctuator, which can be cancelled. Source: Kafka's Cancellable."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never call the punctuator again, also not after a restart."""
        self.is_cancelled = True


class Schedule(Cancellable):
    """A punctuator of a node, and when it is due next."""

    def __init__(self, node: str, interval_ms: int, start_ms: int | None, punctuator: Punctuator, next_ms: int) -> None:
        super().__init__()
        self.node = node
        self.interval_ms = interval_ms
        self.start_ms = start_ms
        self.punctuator = punctuator
        self.next_ms = next_ms

    def advance(self, now_ms: int) -> None:
        """Move on to the first time of the schedule after `now_ms`: calls that were missed are not made up for.

        If that is after LAST_MS, the schedule is over.
        """
        missed = max(0, now_ms - self.next_ms) // self.interval_ms
        next_ms = self.next_ms + (missed + 1) * self.interval_ms
        if next_ms > LAST_MS:
            self.cancel()
        else:
            self.next_ms = next_ms


class PunctuationQueue:
    """The schedules on one clock. `next_ms` is when the first of them may be due, NEVER_MS if there are none."""

    def __init__(self) -> None:
        self.next_ms = NEVER_MS
        self._heap: list[tuple[int, int, Schedule]] = []
        self._added = 0

    def add(self, schedule: Schedule) -> None:
        """Add a schedule, or put one back. Of two that are due at the same time, the first added runs first."""
        self._added += 1
        heapq.heappush(self._heap, (schedule.next_ms, self._added, schedule))
        self.drop_cancelled()

    def punctuate(self, now_ms: int, call: Callable[[Schedule, int], None]) -> int:
        """Let `call` run every schedule that is due at `now_ms`, in the order of their times; return how many."""
        count = 0
        self.drop_cancelled()
        while self.next_ms <= now_ms:
            schedule = heapq.heappop(self._heap)[2]
            call(schedule, now_ms)
            count += 1
            schedule.advance(now_ms)
            self.add(schedule)
        return count

    def drop_cancelled(self) -> None:
        """Forget schedules that were cancelled, so that `next_ms` is not one of theirs."""
        while self._heap and self._heap[0][2].is_cancelled:
            heapq.heappop(self._heap)
        self.next_ms = self._heap[0][0] if self._heap else NEVER_MS


class Punctuations:
    """All schedules of a task, on both clocks."""

    def __init__(self, recorded: RecordedPunctuations) -> None:
        self.stream_time = PunctuationQueue()
        self.wall_clock = PunctuationQueue()
        self._recorded: Mapping[str, Sequence[RecordedPunctuation]] = recorded
        self._made: dict[str, list[tuple[PunctuationType, Schedule]]] = {}
        self.initializing: str | None = None
        """The node whose `init` is running."""

    def schedule(
        self,
        node: str,
        punctuation_type: PunctuationType,
        interval_ms: int,
        punctuator: Punctuator,
        start_ms: int | None,
        now_ms: int,
    ) -> Cancellable:
        """Return the schedule, due when it was recorded to be, else as a new one. `now_ms` is the wall clock's.

        Raises TopologyError outside of `init`, ValueError if a new one would be due after LAST_MS.
        """
        if self.initializing != node:
            raise TopologyError(
                f"node {node!r} calls schedule() outside of its init(): a processor lives for one micro-batch, and "
                "what a record or a punctuator schedules would end with it, or schedule itself for ever. Schedule in "
                "init() at the finest interval that is needed, and keep in a state store what is due when"
            )
        made = self._made.setdefault(node, [])
        recorded = self._recorded.get(node, ())
        before = recorded[len(made)] if len(made) < len(recorded) else None
        # With another clock, interval or start it is a new schedule: the topology was changed.
        if before is not None and before[:3] == (punctuation_type.value, interval_ms, start_ms):
            schedule = Schedule(node, interval_ms, start_ms, punctuator, before.next_ms or 0)
            if before.next_ms is None:
                schedule.cancel()
        else:
            first_ms = _first_ms(punctuation_type, interval_ms, start_ms, now_ms)
            if first_ms > LAST_MS:
                raise ValueError(f"interval_ms: the first call would be due at {first_ms}, later than 2^63 - 1")
            schedule = Schedule(node, interval_ms, start_ms, punctuator, first_ms)
        made.append((punctuation_type, schedule))
        queue = self.stream_time if punctuation_type is PunctuationType.STREAM_TIME else self.wall_clock
        queue.add(schedule)
        return schedule

    def recorded(self) -> dict[str, tuple[RecordedPunctuation, ...]]:
        """Return when each schedule is due next, None if it was cancelled: what a later task is made with."""
        return {
            node: tuple(
                RecordedPunctuation(
                    kind.value, each.interval_ms, each.start_ms, None if each.is_cancelled else each.next_ms
                )
                for kind, each in made
            )
            for node, made in self._made.items()
        }


def _first_ms(punctuation_type: PunctuationType, interval_ms: int, start_ms: int | None, now_ms: int) -> int:
    """Return when a new schedule is due: on stream time with the first record, on the wall clock after an interval."""
    by_stream_time = punctuation_type is PunctuationType.STREAM_TIME
    if start_ms is None:
        return 0 if by_stream_time else now_ms + interval_ms
    if by_stream_time or start_ms >= now_ms:
        return start_ms
    return start_ms + ((now_ms - start_ms) // interval_ms + 1) * interval_ms
