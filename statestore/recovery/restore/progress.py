"""Reports how far a restore is, to a listener and to the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Protocol

from statestore.recovery.commit.figures import RestoreFigures

_LOG = logging.getLogger(__name__)
_LOG_EVERY_S = 5.0


class StateRestoreListener(Protocol):
    """Is told when a shard's stores are restored, on the executor that does it. Must be picklable.

    Called when a local copy is made anew or is more than one version behind, not for the one delta of the last batch.
    Positions are versions of the shard, where Kafka has offsets. What it raises fails the batch. Source: Kafka's
    StateRestoreListener.
    """

    def on_restore_start(self, shard: int, store: str, starting_version: int, ending_version: int) -> None:
        """Take note that `store` is at `starting_version` and is brought to `ending_version`."""

    def on_batch_restored(self, shard: int, store: str, batch_end_version: int, num_restored: int) -> None:
        """Take note of `num_restored` more entries: those of a snapshot, where it is an estimate, or of a delta."""

    def on_restore_end(self, shard: int, store: str, total_restored: int) -> None:
        """Take note that the store is restored."""


class RestoreProgress:
    """One restore of some stores of a shard. Bytes may be reported from several threads."""

    figures = RestoreFigures()
    """What it came to; nothing before its end."""

    def __init__(
        self,
        shard: int,
        stores: Iterable[str],
        starting_version: int,
        ending_version: int,
        listener: StateRestoreListener | None = None,
    ) -> None:
        self._shard = shard
        self._restored = dict.fromkeys(stores, 0)
        self._ending_version = ending_version
        self._listener = listener
        self._lock = threading.Lock()
        self._bytes = 0
        self._delta_bytes = 0
        self._started_s = self._logged_s = time.monotonic()
        if listener is not None:
            for store in self._restored:
                listener.on_restore_start(shard, store, starting_version, ending_version)

    def count_restored(self, store: str, version: int, entries: int) -> None:
        """Count entries that were restored into a store, which brought it to `version`."""
        self._restored[store] += entries
        if self._listener is not None:
            self._listener.on_batch_restored(self._shard, store, version, entries)
        if self._is_time_to_log():
            _LOG.info("shard %d: restored up to version %d of %d", self._shard, version, self._ending_version)

    def count_fetched(self, size_bytes: int, of_bytes: int) -> None:
        """Count bytes of a snapshot that has `of_bytes`."""
        with self._lock:
            self._bytes += size_bytes
            fetched_bytes, due = self._bytes, self._is_time_to_log()
        if due:
            rate = fetched_bytes / 1e6 / max(1e-9, time.monotonic() - self._started_s)
            done = 100 * fetched_bytes / max(1, of_bytes)
            text = "shard %d: fetched %.0f of %.0f MB of its snapshot (%.0f %%, %.0f MB/s)"
            _LOG.info(text, self._shard, fetched_bytes / 1e6, of_bytes / 1e6, done, rate)

    def count_read(self, size_bytes: int) -> None:
        """Count bytes of a delta."""
        self._delta_bytes += size_bytes

    def end(self) -> None:
        """Report that all is restored."""
        elapsed_s = time.monotonic() - self._started_s
        entries = sum(self._restored.values())
        text = "shard %d: restored version %d in %.2f s: %d entries, %.1f MB of snapshots"
        _LOG.info(text, self._shard, self._ending_version, elapsed_s, entries, self._bytes / 1e6)
        self.figures = RestoreFigures(1, entries, self._bytes + self._delta_bytes, elapsed_s * 1e3)
        if self._listener is not None:
            for store, total in self._restored.items():
                self._listener.on_restore_end(self._shard, store, total)

    def _is_time_to_log(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._logged_s < _LOG_EVERY_S:
            return False
        self._logged_s = now_s
        return True
