"""What a user writes: a processor of records, or of columns of them. Source: Kafka Streams' api.Processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record


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
        """Process and forward what was held back of the batch. Called when its records are done, parents first.

        Like during a punctuation there is no record; the timestamp is stream time. May be called more than once.
        """

    def close(self) -> None:
        """Let go of what `init` took. Called once, also after a failure. State stores are closed by themselves."""


ProcessorSupplier = Callable[[], Processor]
"""Makes a new processor at every call: most often the class itself."""


class BatchProcessor(Processor):
    """Processes the records of one shard many at a time, as columns, in the order in which `process` would see them.

    It is given all that is there of a micro-batch, in parts that fit in memory, so records of one key may come in
    several calls. Each record is in one call. A part ends where a punctuator is due, so that punctuators run between
    the same records as ever. A parent that forwards record by record, and a test driver, give it batches of one.

    A batch goes through a topology node by node: who is below sees it when `process_batch` forwards it, all of it.
    So a store that two nodes share shows each of them the other's writes of a whole batch, not of a record.
    """

    def process_batch(self, records: RecordColumns) -> None:
        """Process some records, at least one. An exception fails the batch, which then has changed nothing.

        No single one of them is the current record: as in `finish_batch`, the timestamp is stream time, there are no
        headers, and that is what a `put` of one entry logs. `put_many` logs what each row says.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_batch(self, records)")
