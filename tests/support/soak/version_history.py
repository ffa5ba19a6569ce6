"""What a versioned store must hold, as dicts: the one model of it, of the state machines and of the soak."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from statestore.bytestore.kinds.versioned_rows import NOT_PUT

Found = tuple[Any, int, int | None]
"""A version: what is held of it, and from when and until when it was valid; None for the latest."""


class VersionHistory:
    """The versions of keys, each with what is held of it; None is a tombstone.

    Held is `retention_ms` of history, and what is older goes by whole segments of `segment_ms`.
    """

    def __init__(self, retention_ms: int, segment_ms: int) -> None:
        self.stream_time_ms = -1
        self._retention_ms = retention_ms
        self._segment_ms = segment_ms
        self._held: dict[Any, dict[int, Any]] = {}
        self._ends_ms: dict[Any, set[int]] = {}
        """By key, the times at which something is known to end: a version, a tombstone, or what there was before."""

    @property
    def known_keys(self) -> list[Any]:
        """All keys that were ever put."""
        return list(self._held)

    def add(self, key: Any, held: Any, time_ms: int) -> int:
        """Put a version; return until when it is valid: -1 for the latest, NOT_PUT if it is too old to be kept."""
        if self.is_too_old(time_ms):
            return NOT_PUT
        self.stream_time_ms = max(self.stream_time_ms, time_ms)
        versions, ends_ms = self._held.setdefault(key, {}), self._ends_ms.setdefault(key, set())
        later = [other for other in versions if other > time_ms]
        before = [other for other in versions if other < time_ms]
        if later:
            ends_ms.add(min(later))
        elif (before and versions[max(before)] is not None) or (held is None and versions.get(time_ms) is None):
            ends_ms.add(time_ms)
        if held is None and not later and time_ms not in ends_ms:
            # As in Kafka: a tombstone that replaces the latest version leaves no mark of its own.
            del versions[time_ms]
        else:
            versions[time_ms] = held
        return min(later, default=-1)

    def is_too_old(self, time_ms: int) -> bool:
        return time_ms < self.stream_time_ms - self._retention_ms

    def as_of(self, key: Any, time_ms: int) -> Found | None:
        for held, from_ms, to_ms in self._versions(key):
            if from_ms <= time_ms and (to_ms is None or (time_ms < to_ms and not self.is_too_old(time_ms))):
                return held, from_ms, to_ms
        return None

    def between(self, key: Any, first_ms: int, last_ms: int) -> list[Found]:
        """Return what was valid then, oldest first; beyond the history what is in segments that have not expired."""
        live = max(0, self.stream_time_ms - self._retention_ms) // self._segment_ms
        return [
            (held, from_ms, to_ms)
            for held, from_ms, to_ms in self._versions(key)
            if from_ms <= last_ms
            and (
                to_ms is None
                or (to_ms > first_ms and to_ms // self._segment_ms >= live and not self.is_too_old(last_ms))
            )
        ]

    def _versions(self, key: Any) -> Iterator[Found]:
        versions = self._held.get(key, {})
        ordered = sorted(versions)
        for from_ms in ordered:
            later = ordered[bisect_right(ordered, from_ms) :]
            if versions[from_ms] is not None:
                yield versions[from_ms], from_ms, later[0] if later else None
