"""A party with a chain and without a topology: what it sends, and what it reads, by records or in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statestore import ConsumerRecord, Headers, ProducerRecord, Topology
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors import RecordRefusedError
from statestore.headers.topic_columns import source_batch, source_records
from statestore.interception.failures import raise_refusal
from statestore.interception.passage import EmitPassage, IngestPassage, record_of, source_of
from statestore.interception.task_passages import Ingest
from statestore.middleware import EmittedRecord, IngestedRecord, Interceptor
from statestore.processor.context import TaskRecordContext
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.punctuation import Punctuations
from statestore.processor.task_stores import StoreBacking, build_stores
from tests.support.passed_records import in_columns as columns_of


class Party:
    """Who has interceptors, with stores in memory and a clock that stands still."""

    def __init__(self, interceptors: Iterable[Interceptor], now_ms: int) -> None:
        context = TaskRecordContext(system_time_ms=now_ms)
        around = Topology().with_interceptors(interceptors)
        stores = build_stores(around, context, lambda name: StoreBacking(MemoryByteStore(name)))
        nodes = around.interceptors.values()
        made = TaskInterceptors(nodes, 0, context, stores, Punctuations({}), raise_refusal)
        made.init()
        self._interceptors = made.interceptors
        self.refused: list[RecordRefusedError] = []
        """Why records were left out."""

    def send(self, records: Sequence[EmittedRecord], *, in_columns: bool) -> list[EmittedRecord]:
        """What goes out of records, all to one topic."""
        passage = EmitPassage(self._interceptors, self._leave_out)
        if not in_columns:
            return [made for record in records for made in passage.pass_record(record.copy())]
        return [
            ProducerRecord(records[0].topic, key=key, value=value, timestamp_ms=time_ms, headers=headers)
            for part in passage.pass_columns(columns_of(records))
            for key, value, time_ms, headers in zip(
                part.key.to_pylist(),
                part.value.to_pylist(),
                part.timestamp_ms.to_pylist(),
                map(Headers.from_bytes, part.headers.to_pylist()),
                strict=True,
            )
        ]

    def read(self, records: Sequence[EmittedRecord], *, in_columns: bool) -> list[IngestedRecord]:
        """What is left of records for user code."""
        come = [
            ConsumerRecord(
                each.topic,
                0,
                offset,
                key=each.key,
                value=each.value,
                timestamp_ms=each.timestamp_ms or 0,
                headers=list(each.headers),
            )
            for offset, each in enumerate(records)
        ]
        if not in_columns:
            passage = IngestPassage(self._interceptors, self._leave_out)
            return [made for record in come for made in passage.pass_record(record)]
        ingest = Ingest(self._interceptors, self._leave_out)
        parts = ingest.batches(source_batch([source_of(record) for record in come]))
        return [record_of(source) for part in parts for source in source_records(part)]

    def _leave_out(self, record: object, interceptor: str, error: RecordRefusedError) -> None:
        self.refused.append(error)
