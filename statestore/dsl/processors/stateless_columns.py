"""Steps without state, of records in columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statestore.headers.record_columns import RecordColumns
from statestore.processor.batch_processor import BatchProcessor
from statestore.processor.context import ProcessorContext


class _ColumnStep(BatchProcessor):
    def __init__(self, function: Callable[[RecordColumns], RecordColumns]) -> None:
        self._function = function

    def init(self, context: ProcessorContext) -> None:
        self._forward = context.forward_batch

    def process_batch(self, records: RecordColumns) -> None:
        self._forward(self._function(records))


@dataclass(frozen=True)
class NewValuesInColumns:
    """Lets changes pass as the values that they made."""

    def __call__(self) -> BatchProcessor:
        """Return a new processor."""
        return _ColumnStep(_new_values)


@dataclass(frozen=True)
class PassingColumns:
    """Lets every record pass."""

    def __call__(self) -> BatchProcessor:
        """Return a new processor."""
        return _ColumnStep(_as_they_are)


def _new_values(changes: RecordColumns) -> RecordColumns:
    new = changes.value.storage.field("new")
    return RecordColumns.adopt(changes.key, new, changes.timestamp_ms, changes.headers, changes.origin)


def _as_they_are(records: RecordColumns) -> RecordColumns:
    return records
