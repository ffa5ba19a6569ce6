"""What a user writes: a processor of records, or of columns of them. Source: Kafka Streams' api.Processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record

# What ready-made operators count with `ProcessorContext.count`: names that figures and metrics share.
DROPPED_RECORDS: Final = "dropped_records"
"""Records that were left out: without a key, or a value where one is needed, and late ones, once a window."""
DROPPED_HEADERS: Final = "dropped_headers"
"""Headers that a policy had no room for."""
LATE_RECORDS: Final = "late_records"
"""Records that came too late for at least one of their windows."""
DUPLICATE_RECORDS: Final = "duplicate_records"
"""Records that were left out because the same record came before."""


class Processor:
    """Processes the records of one shard, one at a time, in order.

    One instance serves one shard for one micro-batch: what must outlive the batch belongs in a state store.
    """

    def init(self, context: ProcessorContext) -> None:
        """Take the context: it forwards records and hands out state stores. Called once, before the first record."""

    def process(self, record: Record[Any, Any]) -> None:
        """Process one record. An exception fails the batch, which then has changed nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, record)")

    def finish_batch(self) -> None:
        """Process and forward what was held back during the batch. Called after its records, parents first.

        As in a punctuation, no record is current; the timestamp is stream time. May be called more than once.
        """

    def close(self) -> None:
        """Release what `init` took. Called once, also after a failure. The task closes state stores itself."""


ProcessorSupplier = Callable[[], Processor]
"""Makes a new processor at every call: most often the class itself."""


@dataclass(frozen=True)
class EitherWay:
    """Makes a processor of columns, or where a record may be left out or looked at by itself, one of records."""

    columns: ProcessorSupplier
    records: ProcessorSupplier
    meeting: str | None = None
    """A name under which nodes meet: handed the rows of sources that alternate, each source's in a column of its own,
    they do together, row by row, what each does with single records (see Meeting)."""

    def __call__(self) -> Processor:
        """Return a processor of columns."""
        return self.columns()


class BatchProcessor(Processor):
    """Processes the records of one shard many at a time, as columns, in the order in which `process` would see them.

    A micro-batch comes in parts that fit in memory: records of one key may come in several calls, each record in one.
    A part also ends where a punctuator is due, so that punctuators run between the same records as with `process`. A
    parent that forwards record by record, and a test driver, pass batches of one.

    One that also defines `process` takes records either way: one by one where that is faster, where a record is to be
    left out by itself (FailureHandling), and where a parent forwards record by record.

    A batch goes through a topology node by node: children see all of it when `process_batch` forwards it. So two nodes
    that share a store see each other's writes of a whole batch, not of a record.
    """

    def process_batch(self, records: RecordColumns) -> None:
        """Process some records, at least one. An exception fails the batch, which then has changed nothing.

        None of them is the current record: as in `finish_batch`, the timestamp is stream time and there are no headers,
        and a `put` of one entry logs these. `put_many` logs the timestamp and headers of each row.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_batch(self, records)")


def needs_columns(processor: Processor) -> bool:
    """Return whether a processor takes records in columns only."""
    return isinstance(processor, BatchProcessor) and type(processor).process is Processor.process
