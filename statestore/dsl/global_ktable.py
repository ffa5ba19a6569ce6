"""GlobalKTable: a table that every shard has all of, for joins by any key. Source: Kafka Streams' GlobalKTable."""

from __future__ import annotations

from statestore.dsl.processors.table_views import TableView
from statestore.dsl.stage import Stage


class GlobalKTable:
    """The latest value of each key of a topic, in every shard; streams join it by a key of their choice."""

    def __init__(self, stage: Stage, store: str, view: TableView) -> None:
        self.stage = stage
        """Its node, and how keys and values are written."""
        self.store = store
        """The name of its store, which every processor can read."""
        self.view = view
        """How streams read it."""
