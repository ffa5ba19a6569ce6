"""Processors that tests of several packages put into their topologies."""

from __future__ import annotations

from typing import Any

from statestore import BatchProcessor, Processor, ProcessorContext, Record, RecordColumns


class Passing(Processor):
    """Forwards what it got."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record."""
        self.context.forward(record)


class PassingColumns(BatchProcessor):
    """Forwards what it got, all of a batch at once."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self.context = context

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the records."""
        self.context.forward_batch(records)


class HoldingBack(Processor):
    """Forwards what it got when the batch ends."""

    def init(self, context: ProcessorContext) -> None:
        """Begin with nothing."""
        self.context = context
        self.held: list[Record[Any, Any]] = []

    def process(self, record: Record[Any, Any]) -> None:
        """Hold the record back."""
        self.held.append(record)

    def finish_batch(self) -> None:
        """Forward the records, in order."""
        held, self.held = self.held, []
        for record in held:
            self.context.forward(record)
