"""A hook for records on their way into a shard: KIP-82's broker-side interceptor, where this system has its broker.

The hook sees every record before any source does, as bytes with headers. It may add to the headers, give another value
or timestamp, or keep the record to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from statestore.errors import ProcessorError
from statestore.headers import Headers
from statestore.headers.records import ConsumerRecord, TimestampType
from statestore.processor.receivers import SourceRecord
from statestore.processor.topic_columns import source_batch, source_records

if TYPE_CHECKING:
    from statestore.connect.converters.base import HeaderConverter

BytesRecord: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"
IngestHook: TypeAlias = "Callable[[BytesRecord], BytesRecord | None]"
"""Returns the record to go on with, the same or another; None if it took care of it. Travels to the executors."""

_NAME = "on_ingest"


@runtime_checkable
class ColumnIngest(Protocol):
    """A hook that takes columns too, and has a converter of headers."""

    header_converter: HeaderConverter
    is_in_columns: bool
    """Whether it takes columns."""

    def ingest_columns(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the hook makes of records in SOURCE_COLUMNS: the same as of each by itself."""
        ...


def header_converter_of(hook: Any) -> HeaderConverter | None:
    """Return what processors read typed headers with, None if the hook does not say."""
    return hook.header_converter if isinstance(hook, ColumnIngest) else None


def ingest_batch(batch: pa.RecordBatch, hook: IngestHook | None) -> Iterator[pa.RecordBatch]:
    """Yield what `hook` leaves of records in columns, if anything. Raises as `ingest_records` does."""
    if hook is None:
        yield batch
    elif isinstance(hook, ColumnIngest) and hook.is_in_columns:
        left = _in_columns(batch, hook)
        if left.num_rows:
            yield left
    elif records := list(ingest_records(source_records(batch), hook)):
        yield source_batch(records)


def _in_columns(batch: pa.RecordBatch, hook: Any) -> pa.RecordBatch:
    try:
        return hook.ingest_columns(batch)
    except Exception as cause:
        list(ingest_records(source_records(batch), hook))  # raises for the record that it was
        raise ProcessorError(node=_NAME, doing=f"a batch of {batch.num_rows} records", cause=cause) from cause


def ingest_records(records: Iterable[SourceRecord], hook: IngestHook) -> Iterator[SourceRecord]:
    """Yield what `hook` makes of the records, in their order.

    Raises ProcessorError around what it raises, and if it changes where a record came from or its key: that is what
    decides which shard a record belongs to, and shards are divided already.
    """
    for source in records:
        topic, partition, offset, timestamp_ms, key, value, header_bytes = source
        record = ConsumerRecord(
            topic,
            partition,
            offset,
            key=key,
            value=value,
            timestamp_ms=timestamp_ms,
            timestamp_type=TimestampType.CREATE_TIME,
            headers=Headers.from_bytes(header_bytes),
        )
        try:
            passed = hook(record)
            if passed is None:
                continue
            if not isinstance(passed, ConsumerRecord):
                raise TypeError(f"it must return a ConsumerRecord or None, not {passed!r}")
            if (passed.topic, passed.partition, passed.offset, passed.key) != (topic, partition, offset, key):
                raise ValueError("it must not change topic, partition, offset or key")
            if not isinstance(passed.value, bytes | None):
                raise TypeError(f"it must give a value of bytes or None, not {passed.value!r}")
            if passed.timestamp_ms < 0:
                raise ValueError(f"it must not give a negative timestamp, got {passed.timestamp_ms}")
        except Exception as cause:
            raise ProcessorError(node=_NAME, topic=topic, partition=partition, offset=offset, cause=cause) from cause
        yield topic, partition, offset, passed.timestamp_ms, key, passed.value, passed.headers.to_bytes()
