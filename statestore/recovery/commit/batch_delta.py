"""The delta of a batch under way: held as changelogs, and written to local disk when they spill.

A spill writes record batches of the final delta file, so that nothing is read, sorted or encoded a second time. A key
that is written before and after a spill has a record for each, and the last one counts.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors.state import DurableFileCorruptedError, SpilledDeltaCorruptedError
from statestore.recovery.commit.changelog import BatchChangelog, ChangelogObserver, ChangelogRecord, WrittenRecords
from statestore.recovery.commit.delta import (
    Delta,
    DeltaInfo,
    DeltaWriter,
    LoggedStore,
    changelog_records,
    encode_delta,
    logged_stores,
)
from statestore.recovery.commit.figures import SpillFigures, StoreFigures
from statestore.recovery.location.durable_json import digest, new_digest


class FinishedDelta(NamedTuple):
    """A delta file that is to be made durable: in memory, or at a path that lasts as long as its SpillSpace."""

    content: pa.Buffer | Path
    size_bytes: int
    digest: str
    stores: Mapping[str, StoreFigures]
    """The figures of the stores that it may have records of."""


class BatchDelta:
    """What was written to the stores of a batch; spills to `space`. `stream_times_ms` as in `encode_delta`."""

    def __init__(
        self,
        info: DeltaInfo,
        changelogs: Mapping[str, BatchChangelog],
        stream_times_ms: Mapping[str, int],
        space: SpillSpace,
    ) -> None:
        self._info = info
        self._changelogs = changelogs
        self._stream_times_ms = stream_times_ms
        self.space = space
        self._spilled: _SpilledDelta | None = None
        # It spills before the write sets, from which some changelogs are read.
        space.pending.add(self, first=True)

    def held_bytes(self) -> int:
        """Return about how much memory the changelogs take beside the write sets."""
        return sum(changelog.held_bytes() for changelog in self._changelogs.values())

    def spill(self) -> None:
        """Write what the changelogs hold to disk. Raises LocalDiskFullError, LocalDirectoryError."""
        if self._spilled is None:
            stores = logged_stores(self._changelogs, self._stream_times_ms)
            path = self.space.make_directory() / "delta.arrow"
            self._spilled = _SpilledDelta(path, self._info, stores)
        for name, changelog in self._changelogs.items():
            self._spilled.write(name, changelog)
            changelog.clear()

    def finish(self) -> FinishedDelta | None:
        """Return the file with all that was written, None if nothing was. Call it once. Raises what a spill raised."""
        with self.space.pending.final():
            if self._spilled is not None:
                self.spill()
                return self._spilled.finish()
            if not any(len(changelog) for changelog in self._changelogs.values()):
                return None
            data, figures = encode_delta(self._info, self._changelogs, self._stream_times_ms)
            return FinishedDelta(data, data.size, digest(data), figures)

    def show(self, observer: ChangelogObserver) -> None:
        """Call `observer` with each store that was written to, and its records in the delta; after `finish`.

        Records that spilled are read from disk at each iteration: of several with one key the last one counts. Raises
        what `observer` does; iterating raises SpilledDeltaCorruptedError.
        """
        for name, changelog in self._changelogs.items():
            if self._spilled is None:
                if len(changelog):
                    observer(name, WrittenRecords(changelog.__iter__))
            elif self._spilled.has_records(name):
                observer(name, WrittenRecords(partial(self._spilled.records, name)))

    @property
    def spill_figures(self) -> SpillFigures:
        """The batch's spills so far, and what its write sets and its delta take on local disk."""
        spills = self.space.pending.spills
        if not spills:
            return SpillFigures()
        delta_bytes = 0 if self._spilled is None else self._spilled.file.size_bytes
        return SpillFigures(spills, self.space.size_bytes + delta_bytes)

    def close(self) -> None:
        """Close the file on local disk, if there is one; its SpillSpace removes it."""
        if self._spilled is not None:
            self._spilled.close()


class _SpilledDelta:
    def __init__(self, path: Path, info: DeltaInfo, stores: Mapping[str, LoggedStore]) -> None:
        self._path = path
        self._shard = f"shard {info.shard}"
        self._disk_errors = partial(local_disk_errors, self._shard, path)
        with self._disk_errors():
            self.file = _DigestedFile(path)
            self._writer = DeltaWriter(self.file, info, stores)

    def write(self, name: str, changelog: BatchChangelog) -> None:
        with self._disk_errors():
            self._writer.write(name, changelog)

    def finish(self) -> FinishedDelta:
        with self._disk_errors():
            self._writer.close()
            self.file.close()
        return FinishedDelta(self._path, self.file.size_bytes, self.file.digest.hexdigest(), self._writer.figures)

    def has_records(self, name: str) -> bool:
        figures = self._writer.figures.get(name)
        return figures is not None and figures.entries_put + figures.entries_deleted > 0

    def records(self, name: str) -> Iterator[ChangelogRecord]:
        """Yield the records of a store, a record batch at a time; after `finish`."""
        try:
            with pa.memory_map(str(self._path)) as source:
                for store, batch in Delta(source.read_buffer(), str(self._path)).batches():
                    if store == name:
                        yield from changelog_records(batch)
        except (OSError, DurableFileCorruptedError) as cause:
            raise SpilledDeltaCorruptedError(self._shard, path=str(self._path)) from cause

    def close(self) -> None:
        # A full disk may fail once more; by now the content was given up.
        with suppress(OSError):
            self.file.close()


class _DigestedFile(io.RawIOBase):
    """Writes to a file and takes the digest on the way: of what was to be written, not of what the disk holds."""

    def __init__(self, path: Path) -> None:
        self._to = io.BufferedWriter(io.FileIO(path, "wb"))
        self.digest = new_digest()
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        # First, so that the digest never matches a file that was cut by a full disk.
        self.digest.update(data)
        self.size_bytes += len(data)
        self._to.write(data)
        return len(data)

    def close(self) -> None:
        self._to.close()
        super().close()
