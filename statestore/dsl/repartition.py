"""Records that go through a topic of the program's own, to be divided anew by key. Source: Kafka's KStreamImpl."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from statestore.dsl.processors.stateless import PassThrough, Stateless, filtered
from statestore.dsl.row_serde import RowSerde
from statestore.dsl.stream_graph import GraphNode, Stage
from statestore.errors import TopologyError
from statestore.format.serde import STANDARD_SERDES, Serde
from statestore.processor.processor import ProcessorSupplier

_SUFFIX: Final = "-repartition"
_SERDES: Final = {serde.columns.type: serde for serde in STANDARD_SERDES.values() if serde.columns is not None}
"""Of columns' types; others have none."""
_NUMBERED: Final = re.compile(r"KSTREAM.*-[0-9]{10}")


def divided_anew(
    stage: Stage, prefix: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
) -> Stage:
    """Return what comes back of a stage's records from the topic `<prefix>-repartition`.

    Serdes of None are those of the stage. Records without a key are left out, unless a left or outer join comes after.
    Raises TopologyError for want of a serde, and for a name that is taken.
    """
    graph, topic = stage.graph, topic_of(prefix)
    # Kafka takes three numbers, also where it does without them.
    sink, node, source = (graph.new_name(f"KSTREAM-{part}-") for part in ("SINK", "FILTER", "SOURCE"))
    if _NUMBERED.fullmatch(prefix) is None:
        sink, node, source = (f"{topic}-{part}" for part in ("sink", "filter", "source"))
    keys, values = serdes_of_topic(stage.with_serdes(key_serde, value_serde), topic)

    def supplier() -> ProcessorSupplier:
        return PassThrough if graph.needs_null_keys(node) else partial(Stateless, filtered, _has_key)

    graph.add(GraphNode(node, (stage.node,), supplier))
    graph.add_repartition(topic, sink, source, node, key_serde=keys, value_serde=values)
    has_columns = keys.columns is not None and values.columns is not None
    return Stage(graph, source, keys, values, graph.in_columns and has_columns)


def by_column(
    stage: Stage, column: str, key_serde: Serde[Any] | None
) -> tuple[Callable[[Any, Any], Any], Serde[Any] | None]:
    """Return what makes keys of a column of values that are dicts, and their serde; None if their type is not known.

    Raises TopologyError for a column that there is not, and for a type that no standard serde writes.
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
    return _OfColumn(column), key_serde


@dataclass(frozen=True)
class _OfColumn:
    column: str

    def __call__(self, key: Any, value: Any) -> Any:
        return None if value is None else value.get(self.column)


def topic_of(prefix: str) -> str:
    """Return the name of a repartition topic."""
    return prefix if prefix.endswith(_SUFFIX) else prefix + _SUFFIX


def serdes_of_topic(stage: Stage, topic: str) -> tuple[Serde[Any], Serde[Any]]:
    """Return how keys and values are written to a repartition topic. Raises TopologyError if that is not known."""
    keys, values = stage.key_serde, stage.value_serde
    if keys is None or values is None:
        what = "key" if keys is None else "value"
        raise TopologyError(
            f"the records of {stage.node!r} go to topic {topic!r}, to be divided anew by key, and it is not known how "
            f"their {what}s are written: give {what}_serde to the step that makes them, or to group_by_key(), "
            "group_by() or repartition()"
        )
    return keys, values


@dataclass
class Regrouping:
    """How a stream is divided before it is aggregated: by all of a name in one topic, else by each in its own."""

    name: str | None
    _divided: Stage | None = None

    def divided(self, stage: Stage, store: str) -> Stage:
        """Return what comes back of the records to be aggregated in a store."""
        if self.name is None:
            return divided_anew(stage, store)
        if self._divided is None:
            self._divided = divided_anew(stage, self.name)
        else:
            stage.graph.skip_numbers(3)
        return self._divided


def _has_key(key: Any, value: Any) -> bool:
    return key is not None
