"""Records on their way between two parties: what one emits, another ingests, one by one or in columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from statestore import ConsumerRecord, Headers, ProducerRecord
from statestore.headers.record_columns import RecordColumns
from statestore.middleware import Chain, EmittedRecord, IngestedRecord, Interceptor

Pairs = list[tuple[str, bytes | None]]


class Clocks:
    """A context of nothing but its clocks, and the shard."""

    def __init__(self, system_time_ms: int = 1_700_000_000_000, shard: int = 0) -> None:
        self.current_system_time_ms = system_time_ms
        self.current_stream_time_ms = -1
        self.shard = shard


def started(interceptor: Any, clocks: Clocks | None = None) -> Any:
    """The interceptor, with a context."""
    interceptor.init(clocks or Clocks())
    return interceptor


def produced(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: Iterable[Any] = (), topic: str = "orders"
) -> EmittedRecord:
    return ProducerRecord(topic, key=key, value=value, timestamp_ms=1000, headers=list(headers))


def arrived(record: EmittedRecord, topic: str | None = None, timestamp_ms: int = 1000) -> IngestedRecord:
    """What a consumer gets of a record."""
    return ConsumerRecord(
        topic or record.topic,
        0,
        7,
        key=record.key,
        value=record.value,
        timestamp_ms=timestamp_ms,
        headers=[tuple(header) for header in record.headers],
    )


def through(out: Interceptor, record: EmittedRecord, into: Interceptor | None = None) -> IngestedRecord:
    """The one record that is left of one when it was emitted through one interceptor and ingested through another."""
    (sent,) = Chain([out]).emit(record)
    (got,) = Chain([into or out]).ingest(arrived(sent))
    return got


def in_columns(records: Iterable[EmittedRecord | IngestedRecord]) -> RecordColumns:
    """Records as a hook for columns is given them."""
    rows = list(records)
    topics = pa.array([row.topic for row in rows], pa.string()).dictionary_encode()
    return RecordColumns.adopt(
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        pa.array([row.timestamp_ms for row in rows], pa.int64()),
        pa.array([row.headers.to_bytes() for row in rows], pa.binary()),
        pa.record_batch([topics], names=["topic"]),
    )


def contents(records: Iterable[EmittedRecord | IngestedRecord] | RecordColumns) -> list[tuple[Any, Any, Pairs]]:
    """Key, value and headers of each record."""
    if isinstance(records, RecordColumns):
        columns = records.key.to_pylist(), records.value.to_pylist(), records.headers.to_pylist()
        return [
            (key, value, [tuple(one) for one in Headers.from_bytes(headers)])
            for key, value, headers in zip(*columns, strict=True)
        ]
    return [(record.key, record.value, [tuple(header) for header in record.headers]) for record in records]


def shown(error: BaseException | None) -> str:
    """All that a log of an error says, without lines of code: its fields too, and the errors that it came of."""
    if error is None:
        return ""
    behind = error.__cause__ if error.__suppress_context__ else error.__context__
    return f"{error!r} {error} {vars(error)} {shown(behind)}"
