"""Stage: where a stream or a table stands in its program."""

from __future__ import annotations

from typing import Any, NamedTuple

from statestore.dsl.stream_graph import StreamGraph
from statestore.format.serde import Serde


class Stage(NamedTuple):
    """A node of a program, and how what it sends on is written; serdes of None are not known."""

    graph: StreamGraph
    node: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    in_columns: bool = False
    """Whether records, or changes, come in columns, if who is below takes them."""


class Staged:
    """What stands at a stage of a program: every stream and every table."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._graph, self._node, self._key_serde, self._value_serde, self._in_columns = stage
