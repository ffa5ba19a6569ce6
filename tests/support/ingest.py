"""Records through a hook for what comes in, as a task has them pass it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from statestore.middleware.ingest_function import IngestFunction, IngestHook
from statestore.processor.ingest import Ingest
from statestore.processor.receivers import SourceRecord


def ingest_records(records: Iterable[SourceRecord], hook: IngestHook) -> Iterator[SourceRecord]:
    return Ingest([IngestFunction(hook)]).records(records)


def ingest_batch(batch: pa.RecordBatch, hook: IngestHook) -> pa.RecordBatch:
    (part,) = [*Ingest([IngestFunction(hook)]).batches(batch)] or [batch.slice(0, 0)]
    return part
