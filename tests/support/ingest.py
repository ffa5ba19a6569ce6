"""Records through a hook for what comes in, as a task has them pass it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from statestore.headers.topic_columns import SourceFields
from statestore.interception.interceptor import IngestFunction, IngestHook
from statestore.interception.task_passages import Ingest


def ingest_records(records: Iterable[SourceFields], hook: IngestHook) -> Iterator[SourceFields]:
    return Ingest([IngestFunction(hook)]).records(records)


def ingest_batch(batch: pa.RecordBatch, hook: IngestHook) -> pa.RecordBatch:
    (part,) = [*Ingest([IngestFunction(hook)]).batches(batch)] or [batch.slice(0, 0)]
    return part
