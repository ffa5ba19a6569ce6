"""The options of the data source, named as in Spark's own state reader where that has them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.errors import DataSourceOptionError
from statestore.format.byte_text import bytes_of
from statestore.format.serde import STANDARD_SERDES
from statestore.recovery.commit.pointer import CommitPointer, parse_pointers
from statestore.recovery.metadata.state_metadata import ShardBy
from statestore.spark.datasource.read_as import BYTES, ReadAs
from statestore.stores.supplier import default_segment_interval_ms

T = TypeVar("T")

MAX_POINTERS_BYTES: Final = 48 << 20
"""Enough for some thousand shards. Spark Connect takes messages of 128 MiB, and a change feed has pointers twice."""
_READ: Final = (
    "path store checkpoint pointers pointersBefore allPointers batchId includeHeaders pushFilters trustKeys workDir "
    "liveAtMs header keyAs valueAs readChangeFeed changeStartBatchId changeEndBatchId"
)
_WRITE: Final = "path store kind shards shardBy retentionMs segmentIntervalMs windowSizeMs workDir"


@dataclass(frozen=True)
class ReadOptions:
    """How to read a state."""

    path: str
    store: str | None
    checkpoint: str | None
    pointers: str | None
    pointers_before: str | None
    """Those before the first batch of the change feed; like `pointers`, the text or the name of a file."""
    all_pointers: bool
    """Whether the checkpoint has no other pointers, so that shards without one have committed nothing."""
    batch_id: int | None
    include_headers: bool
    push_filters: bool
    trust_keys: bool
    work_dir: str | None
    live_at_ms: int | None
    header: tuple[str, bytes] | None
    """Key and value of a header that rows must have; None if all are asked for."""
    read_as: ReadAs
    change_start_batch_id: int | None
    """The first batch of the change feed; None if the store itself is to be read."""
    change_end_batch_id: int | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Return the options of a read. Raises DataSourceOptionError."""
        options = _Options(given, _READ)
        feed = options.flag("readChangeFeed")
        start, end = options.number("changeStartBatchId"), options.number("changeEndBatchId")
        read = cls(
            options.required("path", "is missing: say where the state is, with load(LOCATION)"),
            options.text("store"),
            options.text("checkpoint"),
            options.pointers("pointers"),
            options.pointers("pointersBefore"),
            options.flag("allPointers"),
            options.number("batchId"),
            options.flag("includeHeaders", True),
            options.flag("pushFilters"),
            options.flag("trustKeys"),
            options.text("workDir"),
            options.number("liveAtMs"),
            options.parsed("header", _header, "KEY=VALUE, with 0x before a VALUE in hex"),
            ReadAs(options.encoding("keyAs"), options.encoding("valueAs")),
            start,
            end,
        )
        if read.checkpoint is not None and read.pointers is not None:
            raise DataSourceOptionError("pointers", "can't be given together with 'checkpoint': give one of them")
        if read.pointers is None and read.all_pointers:
            raise DataSourceOptionError("allPointers", "needs the option 'pointers'")
        if read.pointers_before is not None and (read.pointers is None or not feed):
            raise DataSourceOptionError("pointersBefore", "needs a change feed and the option 'pointers'")
        if read.batch_id is not None and read.checkpoint is None:
            raise DataSourceOptionError("batchId", "needs the option 'checkpoint', where that batch is recorded")
        if feed:
            read._check_feed()
        elif start is not None or end is not None:
            raise DataSourceOptionError("readChangeFeed", "must be true for changes between batches")
        return read

    def _check_feed(self) -> None:
        start, end = self.change_start_batch_id, self.change_end_batch_id
        if start is None:
            raise DataSourceOptionError("changeStartBatchId", "is missing: say which batch's changes come first")
        if end is not None and end < start:
            raise DataSourceOptionError("changeEndBatchId", f"must not be before {start}, got {end}")
        given = (self.pointers, end, self.pointers_before if start else "")
        if self.checkpoint is None and None in given:
            raise DataSourceOptionError(
                "readChangeFeed",
                "needs the option 'checkpoint', where batches are recorded, or all that "
                "committed_options(spark, CHECKPOINT, change_start_batch_id=N) returns",
            )
        if self.batch_id is not None:
            raise DataSourceOptionError("batchId", "has no meaning for a change feed; use changeEndBatchId")
        if self.push_filters:
            raise DataSourceOptionError("pushFilters", "has no meaning for a change feed, which is read as a whole")
        if self.live_at_ms is not None:
            raise DataSourceOptionError("liveAtMs", "has no meaning for a change feed, which shows deletes as well")
        if self.header is not None:
            raise DataSourceOptionError("header", "has no meaning for a change feed, which is read as a whole")


@dataclass(frozen=True)
class WriteOptions:
    """Which state to make, with one store."""

    path: str
    spec: StoreSpec
    shards: int
    shard_by: str
    work_dir: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        """Return the options of a write. Raises DataSourceOptionError."""
        options = _Options(given, _WRITE)
        shards = options.number("shards", least=1)
        if shards is None:
            raise DataSourceOptionError("shards", "is missing: say how many parts the key space has")
        return cls(
            options.required("path", "is missing: say where the state shall be, with save(LOCATION)"),
            options.spec(),
            shards,
            (options.parsed("shardBy", ShardBy, "key or partition") or ShardBy.KEY).value,
            options.text("workDir"),
        )


def _header(text: str) -> tuple[str, bytes]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return key, bytes_of(value)


def pointers_of(text_or_file: str) -> list[CommitPointer]:
    """Return the commit pointers in a text, or in a file on the driver's machine."""
    text = text_or_file
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text_or_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise DataSourceOptionError(
                "pointers", f"names a file that can't be read ({cause}): name another, or give the pointers themselves"
            ) from cause
    return parse_pointers(text)


class _Options:
    """Options by name, in any case. Raises DataSourceOptionError for an unknown one."""

    def __init__(self, given: Mapping[str, str], known: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = known.split()
        by_lower = {name.lower() for name in names}
        for name in self._given:
            if name not in by_lower:
                raise DataSourceOptionError(name, f"is unknown; known are {', '.join(sorted(names))}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def pointers(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None and len(text) > MAX_POINTERS_BYTES:
            raise DataSourceOptionError(
                name,
                f"has {len(text):,} bytes, more than the {MAX_POINTERS_BYTES:,} that Spark should transport: write "
                "them to a file on the driver's machine (with Spark Connect, the server's), and name it here",
            )
        return text

    def required(self, name: str, problem: str) -> str:
        value = self.text(name)
        if not value:
            raise DataSourceOptionError(name, problem)
        return value

    def number(self, name: str, *, least: int = 0) -> int | None:
        def whole(text: str) -> int:
            value = int(text)
            if not least <= value < 2**63:
                raise ValueError(text)
            return value

        return self.parsed(name, whole, f"a whole number, {least} or more")

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.parsed(name, lambda text: {"true": True, "false": False}[text.lower()], "true or false")
        return default if value is None else value

    def encoding(self, name: str) -> str:
        wanted = f"one of {', '.join(STANDARD_SERDES)}"
        return self.parsed(name, lambda text: STANDARD_SERDES[text.lower()].name, wanted) or BYTES

    def spec(self) -> StoreSpec:
        known = f"one of {', '.join(kind.value for kind in StoreType)}"
        store_type = self.parsed("kind", StoreType, known)
        if store_type is None:
            raise DataSourceOptionError("kind", f"is missing: say {known}")
        kind, store_format = store_type.store_kind, store_type.store_format
        retention_ms = self.number("retentionMs")
        interval_ms = self.number("segmentIntervalMs", least=1)
        if kind.is_segmented and retention_ms is not None and interval_ms is None:
            interval_ms = default_segment_interval_ms(kind, retention_ms)
        name = self.required("store", "is missing: say what the store is called")
        window_size_ms = self.number("windowSizeMs")
        needed = {"retentionMs": (kind.is_segmented, retention_ms)}
        needed["segmentIntervalMs"] = (kind.is_segmented, interval_ms)
        needed["windowSizeMs"] = (kind.has_windows, window_size_ms)
        for option, (has_it, value) in needed.items():
            if has_it and value is None:
                raise DataSourceOptionError(option, f"is missing; a store of the kind {store_type.value} has it")
            if not has_it and value is not None:
                raise DataSourceOptionError(option, f"has no meaning for a store of the kind {store_type.value}")
        try:
            return StoreSpec(
                name, kind, store_format, retention_ms, interval_ms, window_size_ms, store_type.retain_duplicates
            )
        except ValueError as cause:
            raise DataSourceOptionError("store", f"makes no store ({cause})") from cause

    def parsed(self, name: str, parse: Callable[[str], T], wanted: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, KeyError):
            raise DataSourceOptionError(name, f"must be {wanted}, got {text!r}") from None


@contextmanager
def work_directory(prefix: str, work_dir: str | None) -> Iterator[str]:
    """Hand out a temporary directory in `work_dir`, or in the machine's. Raises DataSourceOptionError."""
    require_work_dir(work_dir)
    with TemporaryDirectory(prefix=prefix, dir=work_dir) as directory:
        yield directory


def require_work_dir(work_dir: str | None) -> None:
    """Raise DataSourceOptionError unless the directory exists on this machine, an executor's."""
    if work_dir is not None and not Path(work_dir).is_dir():
        raise DataSourceOptionError(
            "workDir", f"names {work_dir!r}, which is not a directory on {socket.gethostname()}"
        )
