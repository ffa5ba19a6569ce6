"""Steps without state, of records in columns."""

from __future__ import annotations

from statestore.headers.record_columns import RecordColumns
from statestore.processor.batch_processor import BatchProcessor
from statestore.processor.context import ProcessorContext


class PassThroughColumns(BatchProcessor):
    """Lets every record pass."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._forward = context.forward_batch

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the records."""
        self._forward(records)


class NewValueColumns(PassThroughColumns):
    """Lets changes pass as the values that they made."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the new values."""
        new = records.value.storage.field("new")
        self._forward(RecordColumns.adopt(records.key, new, records.timestamp_ms, records.headers, records.origin))
