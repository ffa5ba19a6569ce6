"""Which versions of a store are live at its latest time; the others would go with its next write."""

from __future__ import annotations

from statestore.bytestore.kinds.segments import Segments
from statestore.recovery.making.logical_writes import LogicalWrite


class LiveVersions:
    """Says which writes of a versioned store are live, each once the next one has come.

    Those of a key must come one after the other, oldest first. A write is live if something of it has not expired.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._held: LogicalWrite | None = None
        self._expired = 0
        self._has_live = False
        """Whether a version of the held one's key that is older was live."""

    def followed_by(self, write: LogicalWrite | None) -> LogicalWrite | None:
        """Hold a write, and return the one that was held, None if that has expired or there was none."""
        held, self._held = self._held, write
        if held is None:
            return None
        same_key = write is not None and write.key == held.key
        live = self._is_live(held, write.timestamp_ms if write is not None and same_key else None)
        self._has_live = same_key and (self._has_live or live)
        self._expired += not live
        return held if live else None

    def take_expired(self) -> int:
        """Return how many had expired since this was asked last."""
        expired, self._expired = self._expired, 0
        return expired

    def _is_live(self, held: LogicalWrite, ended_ms: int | None) -> bool:
        # A tombstone that nothing comes before stands in the segment of its own time.
        stands_at_ms = held.timestamp_ms if held.stored is None and not self._has_live else ended_ms
        return stands_at_ms is None or self._segments.is_live(self._segments.id_of(stands_at_ms))
