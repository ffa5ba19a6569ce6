"""A hook for records on their way into a shard: KIP-82's broker-side interceptor, where this system has its broker.

The hook sees every record before any source does, as bytes with headers. It may add to the headers, give another value
or timestamp, or keep the record to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from statestore.errors import ProcessorError
from statestore.headers import Headers
from statestore.headers.records import ConsumerRecord, TimestampType
from statestore.processor.receivers import SourceRecord

BytesRecord: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"
IngestHook: TypeAlias = "Callable[[BytesRecord], BytesRecord | None]"
"""Returns the record to go on with, the same or another; None if it took care of it. Travels to the executors."""

_NAME = "on_ingest"


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
