"""A user's processor that may change values but not keys. Source: Kafka Streams' FixedKeyProcessor."""

from __future__ import annotations

from typing import Any, NoReturn, cast

from statestore.errors import TopologyError
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor, Processor, ProcessorSupplier
from statestore.processor.record import Record


class FixedKeyProcessor(Processor):
    """Runs another processor, and refuses records that it forwards with another key than the current record's."""

    def __init__(self, supplier: ProcessorSupplier) -> None:
        self._inner = supplier()

    def init(self, context: ProcessorContext) -> None:
        """Hand on the context, with a check on what is forwarded."""
        if isinstance(self._inner, BatchProcessor):
            raise TopologyError(f"{context.node!r}: process_values() takes no BatchProcessor: use process()")
        self._context = _FixedKeyContext(context)
        self._inner.init(cast(ProcessorContext, self._context))

    def process(self, record: Record[Any, Any]) -> None:
        """Process a record, whose key forwarded records must have."""
        self._context.current = record
        try:
            self._inner.process(record)
        finally:
            self._context.current = None

    def finish_batch(self) -> None:
        """Hand it on."""
        self._inner.finish_batch()

    def close(self) -> None:
        """Hand it on."""
        self._inner.close()


class _FixedKeyContext:
    """A context that only forwards records with the current record's key."""

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context
        self.current: Record[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Forward a record. Raises TopologyError for another key than the current one, and outside of process."""
        current = self.current
        if current is None or (record.key is not current.key and record.key != current.key):  # NaN differs from itself
            self._refuse()
        self._context.forward(record, child)

    def forward_batch(self, records: RecordColumns, child: str | None = None) -> None:
        """Raise TopologyError: columns may have other keys."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TopologyError(
            f"processor {self._context.node!r} of process_values() may only forward in process(), and only records "
            "with the key of the current one: use KStream.process() to forward others"
        )
