"""Slicing: values that are too large for one record travel as several, and users see them whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from statestore.errors.middleware import SliceError
from statestore.format.binary_columns import row_sizes
from statestore.format.keys.entry_key import MAP_KEYS
from statestore.format.serde import Serdes
from statestore.headers.record_columns import RecordColumns
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, InterceptorContext
from statestore.middleware.application import Application, has_none, options
from statestore.middleware.size.slicing.open_messages import Limits, OpenMessages
from statestore.middleware.size.slicing.slice import CHUNK_HEADER, Cutting, Slice
from statestore.stores.builder import PartStore
from statestore.stores.stores import Stores
from statestore.stores.supplier import Duration, milliseconds

_LEAST_BYTES: Final = 128
_LEAST_INTERVAL_MS: Final = 1000
_CHANGES: Final = "it changes or checks whole values, and would get slices: slice last"


class Slicing(Application):
    """Slices records that are too large on their way out, and glues slices on their way in.

    A record comes out when the last of its slices has come in, with the value, the headers and the timestamp of the
    whole one, at the place of that last slice. Until then slices are in two state stores, so that a restart loses none.
    """

    kind = "slicing"
    _options = options(
        INT="max.bytes max.message.bytes max.open.messages max.open.bytes",
        BOOLEAN="glue allow.null.keys use.timers persistent",
        LONG="timeout",
    )
    marks = (CHUNK_HEADER,)
    not_before: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("schema", "cloudevents", "compression", "encryption", "signing", "claim-check"), _CHANGES
    )

    def __init__(
        self,
        max_bytes: int | None = 900_000,
        *,
        glue: bool = True,
        allow_null_keys: bool = False,
        max_message_bytes: int = 64 << 20,
        max_open_messages: int = 1000,
        max_open_bytes: int = 256 << 20,
        timeout: Duration = 3_600_000,
        use_timers: bool = False,
        persistent: bool = True,
    ) -> None:
        """Say what is sliced, and what may wait for its other slices in each shard.

        Args:
            max_bytes: the most that key, value and headers of a record may take together, 128 or more; a larger one is
                sliced. None slices nothing. The default leaves room below the megabyte that brokers take by default.
            glue: whether slices are glued; else they are handed on as they come, and no stores are needed.
            allow_null_keys: whether records without a key are sliced too. Their slices may go to several partitions,
                and are glued only if one shard gets all of them: with one partition, say.
            max_message_bytes: a larger record is refused, on either side. At most 2^31 - 1.
            max_open_messages: of how many messages a shard remembers slices, or that they were delivered.
            max_open_bytes: how much slices may take in a shard's state. Beyond either, the message that has waited
                longest is given up.
            timeout: after how long without a further slice a message is given up; a timedelta, or milliseconds.
            use_timers: whether a timer looks for such messages every quarter of the timeout, not only each batch of the
                shard. Spark does not end a query with timers when all input is read, and can't give them to one that
                began without.
            persistent: whether slices wait in RocksDB, or in memory.

        A message that is given up is refused as its first slice, with a SlicesIncompleteError.
        Raises ValueError for what can't be.
        """
        if max_bytes is not None and not _LEAST_BYTES <= max_bytes < 2**31:
            raise ValueError(f"max_bytes must be from {_LEAST_BYTES} to 2^31 - 1, or None, got {max_bytes}")
        if not 1 <= max_message_bytes < 2**31:
            raise ValueError(f"max_message_bytes must be from 1 to 2^31 - 1, got {max_message_bytes}")
        if max_open_messages < 1 or max_open_bytes < max_message_bytes:
            raise ValueError("one message of max_message_bytes must fit into max_open_messages and max_open_bytes")
        timeout_ms = milliseconds("timeout", timeout, least=1)
        self._max_bytes: Final = max_bytes
        self._glue: Final = glue
        self._allow_null_keys: Final = allow_null_keys
        self._limits: Final = Limits(max_message_bytes, max_open_messages, max_open_bytes, timeout_ms)
        self._use_timers: Final = use_timers
        self._persistent: Final = persistent
        self._cutting = None if max_bytes is None else Cutting(max_bytes, 0, 0)
        self._open: OpenMessages | None = None

    def stores(self) -> Sequence[PartStore]:
        """Return the stores that slices wait in, and what is known of their messages."""
        if not self._glue:
            return ()
        make = make_plain = Stores.in_memory_key_value_store
        if self._persistent:
            make = Stores.persistent_timestamped_key_value_store_with_headers
            make_plain = Stores.persistent_key_value_store
        (chunks, messages), bytes_ = self._store_names, Serdes.bytes()
        of_chunks = Stores.timestamped_key_value_store_with_headers_builder(make(chunks), bytes_, bytes_)
        of_messages = Stores.key_value_store_builder(make_plain(messages), bytes_, bytes_)
        return PartStore(of_chunks, MAP_KEYS), PartStore(of_messages, MAP_KEYS)

    @property
    def _store_names(self) -> tuple[str, str]:
        return f"{self.name}-chunks", f"{self.name}-messages"

    def init(self, context: InterceptorContext) -> None:
        """Take the shard's clock, which says when messages are overdue."""
        super().init(context)
        self._open = None
        if self._max_bytes is not None:
            self._cutting = Cutting(self._max_bytes, context.shard, context.current_system_time_ms)
        if self._glue and self._use_timers:
            context.schedule_wall_clock(max(_LEAST_INTERVAL_MS, self._limits.timeout_ms // 4), self._give_up_overdue)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Slice a record that is too large. Raises SliceError if it can't be sliced, or could not be glued."""
        if self._cutting is None or record.value is None or self._max_bytes is None:
            return (record,)
        size_bytes = len(record.key or b"") + len(record.value) + len(record.headers.to_bytes())
        if size_bytes <= self._max_bytes or record.headers.last_header(CHUNK_HEADER) is not None:
            return (record,)
        if len(record.value) > self._limits.message_bytes:
            raise SliceError(
                f"its value has {len(record.value)} bytes, {self._limits.message_bytes} are allowed: raise "
                "max_message_bytes on either side, or check it in elsewhere (ClaimCheck)"
            )
        if record.key is None and not self._allow_null_keys:
            raise SliceError(
                "it has no key, so its slices might go to several partitions, and never be glued: give it a key, or "
                "say allow_null_keys=True if one shard gets them all"
            )
        return self._cutting.slices(record)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Pass records on if none is too large; else they go one by one."""
        if self._max_bytes is None:
            return records
        sizes = row_sizes(records.key) + row_sizes(records.value) + row_sizes(records.headers)
        return records if np.max(sizes, initial=0) <= self._max_bytes else None

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Keep a slice until all of its message have come, then return the message. Raises SliceError."""
        slice_ = Slice.of(record.headers) if self._glue else None
        if slice_ is None:
            return (record,)
        whole = self._messages().add(record, slice_, self._now_ms())
        return () if whole is None else (whole,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Pass records on if none is a slice; else they go one by one."""
        return records if not self._glue or has_none(records, CHUNK_HEADER) else None

    def finish_batch(self) -> None:
        """Give up what is overdue; with timers, only in a batch that had slices."""
        if self._glue and (self._open is not None or not self._use_timers):
            self._give_up_overdue(self._now_ms())

    def _give_up_overdue(self, now_ms: int) -> None:
        self._messages().give_up_overdue(now_ms)

    def _messages(self) -> OpenMessages:
        """Return the open messages, which are read from state at the first call."""
        if self._open is None:
            if self._context is None:
                raise TypeError("slices are glued in state: give a chain with Slicing to a query or a driver")
            chunks, messages = map(self._context.state_store, self._store_names)
            self._open = OpenMessages(messages, chunks, self._limits, self._context.refuse)
        return self._open

    def __repr__(self) -> str:
        return f"Slicing(max_bytes={self._max_bytes})"
