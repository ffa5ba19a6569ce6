"""What a user writes to take records by columns: a batch processor. Kafka Streams has no such thing."""

from __future__ import annotations

from statestore.headers.record_columns import RecordColumns
from statestore.processor.processor import Processor


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
