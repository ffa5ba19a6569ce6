"""Repartition topics: records go through one to be distributed anew by key. Source: Kafka's KStreamImpl."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from statestore.dsl.processors.stateless import PassThrough, PassThroughColumns, WithKey, WithKeyColumns
from statestore.dsl.row_serde import RowSerde
from statestore.dsl.stream_graph import GraphNode, Stage
from statestore.errors import TopologyError
from statestore.format.serde import STANDARD_SERDES, Serde
from statestore.processor.processor import ProcessorSupplier

_SUFFIX: Final = "-repartition"
_SERDES: Final = {serde.columns.type: serde for serde in STANDARD_SERDES.values() if serde.columns is not None}
"""By column type; other types have none."""
_NUMBERED: Final = re.compile(r"KSTREAM.*-[0-9]{10}")


def divided_anew(
    stage: Stage, prefix: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
) -> Stage:
    """Return the stage of the records after they went through the topic `<prefix>-repartition`.

    Serdes of None are those of the stage. Records without a key are dropped, unless a left or outer join follows.
    Raises TopologyError if a serde is missing or a name is taken.
    """
    graph, topic = stage.graph, topic_of(prefix)
    # Kafka takes three numbers even if it does not use them.
    sink, node, source = (graph.new_name(f"KSTREAM-{part}-") for part in ("SINK", "FILTER", "SOURCE"))
    if _NUMBERED.fullmatch(prefix) is None:
        sink, node, source = (f"{topic}-{part}" for part in ("sink", "filter", "source"))
    keys, values = serdes_of_topic(stage.with_serdes(key_serde, value_serde), topic)

    def supplier() -> ProcessorSupplier:
        ways = (PassThrough, PassThroughColumns) if graph.needs_null_keys(node) else (WithKey, WithKeyColumns)
        return graph.either_way(node, ways[0], ways[1] if stage.in_columns else None)()

    graph.add(GraphNode(node, (stage.node,), supplier))
    graph.add_repartition(topic, sink, source, node, key_serde=keys, value_serde=values)
    has_columns = keys.columns is not None and values.columns is not None
    return Stage(graph, source, keys, values, graph.in_columns and has_columns)


def by_column(
    stage: Stage, column: str, key_serde: Serde[Any] | None
) -> tuple[Callable[[Any, Any], Any], Serde[Any] | None]:
    """Return a function that makes a column of the values the key, and the serde; None if the type is unknown.

    Raises TopologyError if there is no such column, or if no standard serde writes its type.
    """
    values = stage.value_serde
    if isinstance(values, RowSerde):
        values.require_columns(stage.node, [column])
        key_serde = key_serde or _SERDES.get(values.types[column])
        if key_serde is None:
            raise TopologyError(
                f"group_by({column!r}): no serde writes {values.types[column]} as a key: cast the column, or give "
                "group_by() a key_serde"
            )
    return partial(_of_column, column), key_serde


def _of_column(column: str, key: Any, value: Any) -> Any:
    return None if value is None else value.get(column)


def topic_of(prefix: str) -> str:
    """Return the name of a repartition topic."""
    return prefix if prefix.endswith(_SUFFIX) else prefix + _SUFFIX


def serdes_of_topic(stage: Stage, topic: str) -> tuple[Serde[Any], Serde[Any]]:
    """Return the serdes of keys and values in a repartition topic. Raises TopologyError if one is unknown."""
    keys, values = stage.key_serde, stage.value_serde
    if keys is None or values is None:
        what = "key" if keys is None else "value"
        raise TopologyError(
            f"the records of {stage.node!r} go to topic {topic!r}, to be repartitioned by key, but the serde of their "
            f"{what}s is unknown: give {what}_serde to the step that makes them, or to group_by_key(), group_by() or "
            "repartition()"
        )
    return keys, values


@dataclass
class Regrouping:
    """How a stream is repartitioned for its aggregates: with a name in one topic for all, else in one for each."""

    name: str | None
    _divided: Stage | None = None

    def divided(self, stage: Stage, store: str) -> Stage:
        """Return the stage of the repartitioned records, to be aggregated in a store."""
        if self.name is None:
            return divided_anew(stage, store)
        if self._divided is None:
            self._divided = divided_anew(stage, self.name)
        else:
            stage.graph.skip_numbers(3)
        return self._divided
