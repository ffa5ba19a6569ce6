"""Programs of the DSL, as statements that Java and Python both interpret.

A program is a list of statements, each a dictionary with "op", which tests/java/RunDsl.java and `dsl_driver` know. The
methods of `Program` and of `Node` make them; they know what is of which type, so that each statement that needs a serde
says which one: "value" is "string" or "long"; "key" is "string", "windowed" (with "size_ms") or "session". Functions
have names, which `dsl_functions` and RunDsl.java know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

RESULTS = {
    "key_and_text": "string",
    "swap": "string",
    "text": "string",
    "upper": "string",
    "append_x": "string",
    "letters": "string",
    "size": "long",
}
"""The types of what mappers give; the others keep that of what they get."""
LONG_REDUCERS = ("sum",)


@dataclass
class Program:
    """Statements, in the order in which they are made."""

    statements: list[dict[str, Any]] = field(default_factory=list)

    def stream(self, topic: str, value: str = "string", **options: Any) -> Node:
        return self.add("stream", Node(self, value=value), topic=topic, value=value, **options)

    def table(self, topic: str, value: str = "string", **options: Any) -> Node:
        """`materialized` is a dictionary of name, and of history_ms for a versioned store, or retention_ms."""
        return self.add("table", Node(self, value=value, is_table=True), topic=topic, value=value, **options)

    def global_table(self, topic: str, value: str = "string", **options: Any) -> Node:
        return self.add("global_table", Node(self, value=value), topic=topic, value=value, **options)

    def state_store(self, name: str) -> str:
        """A store of a number by key, for `process` and `process_values`."""
        self.add("state_store", Node(self), name=name)
        return name

    def add(self, op: str, made: Node, **options: Any) -> Node:
        made = replace(made, id=f"{op}{len(self.statements)}")
        held = {name: option for name, option in options.items() if option is not None}
        self.statements.append({"id": made.id, "op": op, **held})
        return made


@dataclass(frozen=True)
class Node:
    """A stream, table, or what lies between: what the statement named `id` makes."""

    program: Program
    id: str = ""
    value: str = "string"
    key: str = "string"
    size_ms: int | None = None
    """Of keys that are windows of a fixed size."""
    is_table: bool = False

    def filter(self, predicate: str, **options: Any) -> Node:
        return self._add("filter", self, predicate=predicate, **options)

    def filter_not(self, predicate: str, **options: Any) -> Node:
        return self._add("filter_not", self, predicate=predicate, **options)

    def map_values(self, mapper: str, **options: Any) -> Node:
        return self._add("map_values", self._mapped(mapper), mapper=mapper, **options)

    def flat_map_values(self, mapper: str, **options: Any) -> Node:
        return self._add("flat_map_values", self._mapped(mapper), mapper=mapper, **options)

    def map(self, mapper: str, **options: Any) -> Node:
        return self._add("map", self._mapped(mapper), mapper=mapper, **options)

    def flat_map(self, mapper: str, **options: Any) -> Node:
        return self._add("flat_map", self._mapped(mapper), mapper=mapper, **options)

    def foreach(self, **options: Any) -> None:
        self._add("foreach", self, **options)

    def process(self, store: str, **options: Any) -> Node:
        """Send on each value with how many its key has had, and each number by its value."""
        return self._add("process", replace(self, value="string"), store=store, **options)

    def process_values(self, store: str, **options: Any) -> Node:
        return self._add("process_values", replace(self, value="string"), store=store, **options)

    def split(self, **options: Any) -> Node:
        return self._add("split", self, **options)

    def branch(self, predicate: str, **options: Any) -> Node:
        return self._add("branch", self, predicate=predicate, **options)

    def default_branch(self, **options: Any) -> Node:
        return self._add("default_branch", self, **options)

    def select_key(self, mapper: str, **options: Any) -> Node:
        return self._add("select_key", self, mapper=mapper, **options)

    def merge(self, other: Node, **options: Any) -> Node:
        return self._add("merge", self, other=other.id, **options)

    def group_by_key(self, **options: Any) -> Node:
        return self._add("group_by_key", self, **options)

    def group_by(self, mapper: str, **options: Any) -> Node:
        return self._add("group_by", self, mapper=mapper, **options)

    def group_table(self, mapper: str, **options: Any) -> Node:
        made = replace(self._mapped(mapper), key="string", size_ms=None, is_table=False)
        return self._add("group_table", made, mapper=mapper, **options)

    def cogroup(self, aggregator: str, other: Node | None = None) -> Node:
        """This grouped stream, together with what `other` has already."""
        return self._add("cogroup", self, aggregator=aggregator, other=other.id if other else None)

    def repartition(self, **options: Any) -> Node:
        return self._add("repartition", self, **options)

    def windowed_by_time(self, size_ms: int, *, grace_ms: int, advance_ms: int | None = None) -> Node:
        """Tumbling windows, or hopping ones if they advance."""
        made = replace(self, key="windowed", size_ms=size_ms)
        return self._add("windowed_by", made, kind="time", size_ms=size_ms, grace_ms=grace_ms, advance_ms=advance_ms)

    def windowed_by_difference(self, difference_ms: int, *, grace_ms: int) -> Node:
        """Sliding windows: these end with their last millisecond, and so their keys' size is the difference."""
        made = replace(self, key="windowed", size_ms=difference_ms)
        return self._add("windowed_by", made, kind="sliding", difference_ms=difference_ms, grace_ms=grace_ms)

    def windowed_by_session(self, gap_ms: int, *, grace_ms: int) -> Node:
        made = replace(self, key="session", size_ms=None)
        return self._add("windowed_by", made, kind="session", gap_ms=gap_ms, grace_ms=grace_ms)

    def emit_strategy(self, on: str) -> Node:
        """On is "window_close" or "window_update"."""
        return self._add("emit_strategy", self, on=on)

    def count(self, **options: Any) -> Node:
        return self._add("count", replace(self, value="long", is_table=True), **options)

    def reduce(self, reducer: str, **options: Any) -> Node:
        return self._add("reduce", replace(self, is_table=True), reducer=reducer, **options)

    def aggregate(
        self, initial: str | int, aggregator: str | None = None, merger: str | None = None, **options: Any
    ) -> Node:
        """Sessions have a merger, which is the name of a reducer; several streams have their own aggregators."""
        made = replace(self, value="long" if isinstance(initial, int) else "string", is_table=True)
        return self._add("aggregate", made, initial=initial, aggregator=aggregator, merger=merger, **options)

    def suppress_until_window_closes(self, **options: Any) -> Node:
        """`max_records` and `max_bytes` are bounds, which shut down when full; without, the buffer has none."""
        bounded = {"full": "shut_down"} if options.keys() & {"max_records", "max_bytes"} else {}
        return self._add("suppress", self, until="window_closes", **bounded, **options)

    def suppress_until_time_limit(self, limit_ms: int, **options: Any) -> Node:
        """`full` is "emit_early" or "shut_down", for the bounds `max_records` and `max_bytes`."""
        return self._add("suppress", self, until="time_limit", limit_ms=limit_ms, **options)

    def to_stream(self, mapper: str | None = None, **options: Any) -> Node:
        """`mapper` makes other keys of values."""
        made = replace(self, is_table=False)
        made = made if mapper is None else replace(made, key="string", size_ms=None)
        return self._add("to_stream", made, mapper=mapper, **options)

    def to_table(self, **options: Any) -> Node:
        return self._add("to_table", replace(self, is_table=True), **options)

    def join_stream(
        self, op: str, other: Node, joiner: str, *, before_ms: int, after_ms: int, grace_ms: int, **options: Any
    ) -> Node:
        """`op` is join, left_join or outer_join."""
        return self._join(
            op, other, joiner, kind="stream", before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms, **options
        )

    def join_table(self, op: str, other: Node, joiner: str, **options: Any) -> Node:
        """Join a stream, or a table, with a table; a stream may have `grace_ms`, if the table is versioned."""
        return self._join(op, other, joiner, kind="table", **options)

    def join_by_foreign_key(self, op: str, other: Node, foreign_key: str, joiner: str, **options: Any) -> Node:
        """Join a table with the keys of another one that `foreign_key` finds in its values."""
        return self._join(op, other, joiner, kind="foreign_key", foreign_key=foreign_key, **options)

    def join_global_table(self, op: str, other: Node, key_mapper: str, joiner: str, **options: Any) -> Node:
        return self._join(op, other, joiner, kind="global_table", key_mapper=key_mapper, **options)

    def changes(self, topic: str) -> None:
        """Write "old->new" of each change of a table to a topic."""
        self._add("changes", self, topic=topic)

    def to(self, topic: str, **options: Any) -> None:
        self._add("to", self, topic=topic, **options)

    def _join(self, op: str, other: Node, joiner: str, **options: Any) -> Node:
        made = replace(self, value=other.value if joiner == "right" else "string")
        types = {"left_value": self.value, "right_value": other.value}
        return self._add(op, made, other=other.id, joiner=joiner, **types, **options)

    def _mapped(self, mapper: str) -> Node:
        return replace(self, value=RESULTS.get(mapper, self.value))

    def _add(self, op: str, made: Node, **options: Any) -> Node:
        types = {"value": made.value, "key": made.key, "size_ms": made.size_ms}
        return self.program.add(op, made, of=self.id, **{**types, **options})
