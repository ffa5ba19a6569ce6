"""What a user writes: a processor. Source: Kafka Streams' api.Processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
