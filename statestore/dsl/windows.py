"""Which windows a record belongs to. Source: Kafka Streams' TimeWindows, SlidingWindows, SessionWindows, JoinWindows.

Time spans are timedeltas, or ints of milliseconds. Windows begin at the epoch, or at multiples of their advance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from statestore.stores.supplier import Duration, milliseconds


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size, one beginning every `advance_ms`: tumbling if that is their size, else hopping.

    A window's end is not part of it. `grace_ms` says how long after its end a window still takes records.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Return tumbling windows that close when they end. Raises ValueError for a size below 1 ms."""
        return cls.of_size_and_grace(size, 0)

    @classmethod
    def of_size_and_grace(cls, size: Duration, after_window_end: Duration) -> TimeWindows:
        """Return tumbling windows that take records for a grace after their end. Raises ValueError likewise."""
        size_ms = milliseconds("size", size, least=1)
        return cls(size_ms, size_ms, milliseconds("after_window_end", after_window_end))

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Return hopping windows: one begins every `advance`. Raises ValueError unless that is 1 ms to their size."""
        advance_ms = milliseconds("advance", advance, least=1)
        if advance_ms > self.size_ms:
            raise ValueError(f"advance ({advance_ms} ms) must not be longer than the windows' size ({self.size_ms} ms)")
        return replace(self, advance_ms=advance_ms)

    @property
    def closes_after_ms(self) -> int:
        """How long after its end, which is not part of it, a window closes."""
        return self.grace_ms

    @property
    def most_at_once(self) -> int:
        """How many windows a timestamp belongs to, at most."""
        return -(-self.size_ms // self.advance_ms)

    def starts(self, timestamp_ms: int) -> range:
        """Return the starts of the windows that a timestamp belongs to, earliest first."""
        first_ms = max(0, timestamp_ms - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(first_ms, timestamp_ms + 1, self.advance_ms)


@dataclass(frozen=True)
class SlidingWindows:
    """For each record, one window of the records at most `time_difference_ms` before it, and one of those after it.

    Both ends are part of a window.
    """

    time_difference_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> SlidingWindows:
        """Return windows that close when they end. Raises ValueError for a negative difference."""
        return cls.of_time_difference_and_grace(time_difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, after_window_end: Duration) -> SlidingWindows:
        """Return windows that take records for a grace after their end. Raises ValueError for negative spans."""
        return cls(milliseconds("time_difference", time_difference), milliseconds("after_window_end", after_window_end))

    @property
    def closes_after_ms(self) -> int:
        """How long after its end, which is part of it, a window closes."""
        return self.grace_ms + 1


@dataclass(frozen=True)
class SessionWindows:
    """Records of a key with at most `inactivity_gap_ms` between one and the next. Both ends are part of a session."""

    inactivity_gap_ms: int
    grace_ms: int

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, inactivity_gap: Duration) -> SessionWindows:
        """Return sessions that close when their gap has passed. Raises ValueError for a negative gap."""
        return cls.of_inactivity_gap_and_grace(inactivity_gap, 0)

    @classmethod
    def of_inactivity_gap_and_grace(cls, inactivity_gap: Duration, after_window_end: Duration) -> SessionWindows:
        """Return sessions that take records for a grace longer. Raises ValueError for negative spans."""
        return cls(milliseconds("inactivity_gap", inactivity_gap), milliseconds("after_window_end", after_window_end))

    @property
    def closes_after_ms(self) -> int:
        """How long after its last record a session closes."""
        return self.inactivity_gap_ms + self.grace_ms + 1


@dataclass(frozen=True)
class JoinWindows:
    """Two records are joined if the other's timestamp is at most `before_ms` before or `after_ms` after this one's.

    One of the two may be negative, as long as the window has a length. `grace_ms` says how late records may come.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> JoinWindows:
        """Return windows of that much time on both sides. Raises ValueError for a negative difference."""
        return cls.of_time_difference_and_grace(time_difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, after_window_end: Duration) -> JoinWindows:
        """Return windows of that much time on both sides and a grace. Raises ValueError for negative spans."""
        difference_ms = milliseconds("time_difference", time_difference)
        return cls(difference_ms, difference_ms, milliseconds("after_window_end", after_window_end))

    def before(self, time_difference: Duration) -> JoinWindows:
        """Return windows with another span before. Raises ValueError if they would end before they begin."""
        return _with_length(replace(self, before_ms=_span(time_difference)))

    def after(self, time_difference: Duration) -> JoinWindows:
        """Return windows with another span after. Raises ValueError if they would end before they begin."""
        return _with_length(replace(self, after_ms=_span(time_difference)))

    def closes_after_ms(self, *, is_left: bool) -> int:
        """How long after a record of one side no record of the other side can be joined with it."""
        return (self.after_ms if is_left else self.before_ms) + self.grace_ms + 1

    @property
    def size_ms(self) -> int:
        """The time from the earliest to the latest timestamp that is joined with a record."""
        return self.before_ms + self.after_ms


def _span(time_difference: Duration) -> int:
    return milliseconds("time_difference", time_difference, least=-(2**63))


def _with_length(windows: JoinWindows) -> JoinWindows:
    if windows.size_ms < 0:
        raise ValueError(
            f"join windows must not end before they begin: {windows.before_ms} ms before, {windows.after_ms} ms after"
        )
    return windows
