"""Several aggregates at once: what each keeps of a key, in one dict, and the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.dsl.aggregates.aggregate import Aggregate, ColumnOrFunction
from statestore.dsl.aggregations import Aggregation
from statestore.dsl.row_serde import RowSerde, is_json, row_serde
from statestore.errors import InputError, SerializationError
from statestore.errors.readable import shape_of
from statestore.errors.run import AggregatesError
from statestore.format.serde import STANDARD_SERDES, Serde, Serdes


@dataclass(frozen=True)
class _Part:
    """One of the aggregates."""

    name: str
    column: ColumnOrFunction | None
    aggregation: Aggregation
    finish: Callable[[Any], Any] | None

    def held_in(self, held: Mapping[str, Any]) -> Any:
        """Return what is kept for it, or its initial value if the program has it only now."""
        return held[self.name] if self.name in held else self.aggregation.initializer()

    def add(self, key: Any, value: Any, held: Any) -> Any:
        """Return what is kept after a record. Raises InputError for a value that the aggregate can't take."""
        given = value
        try:
            given = self._given(value)
            return held if given is None else self.aggregation.aggregator(key, given, held)
        except (TypeError, InputError, SerializationError) as cause:
            raise InputError(f"aggregate {self.name!r}: {cause}; it came to {shape_of(given)}") from cause

    def merge(self, key: Any, one: Any, other: Any) -> Any:
        """Return what is kept of two sessions, the earlier one first."""
        if one is None or other is None:
            return other if one is None else one
        assert self.aggregation.merger is not None  # each aggregate has one
        return self.aggregation.merger(key, one, other)

    def _given(self, value: Any) -> Any:
        column = self.column
        if column is None:
            return value
        if not isinstance(column, str):
            return column(value)
        if not isinstance(value, (dict, Mapping)):  # the abstract class is slow
            raise InputError(f"it reads column {column!r}, but the value is {type(value).__name__}, not a dict")
        return value.get(column)


@dataclass(frozen=True)
class SeveralAggregates:
    """The aggregates of a stream, by name."""

    parts: tuple[_Part, ...]
    made_serde: Serde[Any]
    """The serde of the results: with the types of all columns, if known."""

    @classmethod
    def of(cls, aggregates: Mapping[str, Aggregate], value_serde: Serde[Any] | None) -> SeveralAggregates:
        """Return the aggregates of values of a serde. Raises AggregatesError with all problems."""
        if problems := list(_problems(aggregates, value_serde)):
            raise AggregatesError(problems=problems)
        parts, made = [], []
        for name, asked in aggregates.items():
            rule, type_ = asked.rule, _type_of(asked.column, value_serde)
            parts.append(_Part(name, asked.column, rule.aggregation(type_), rule.finish))
            made.append((name, rule.made(type_)))
        is_known = all(type_ is not None for _, type_ in made)
        return cls(tuple(parts), row_serde(pa.struct(made)) if is_known else Serdes.json())

    @property
    def aggregation(self) -> Aggregation:
        """What is kept, in one dict."""
        return Aggregation(self._begin, self._add, self.kept_serde, needs_value=True, merger=self._merge)

    @property
    def is_finished(self) -> bool:
        """Whether the results differ from what is kept."""
        return any(part.finish is not None for part in self.parts)

    @property
    def kept_serde(self) -> Serde[Any]:
        """How it is kept."""
        return Serdes.json() if self.is_finished else self.made_serde

    def finished(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results."""
        return {
            part.name: part.held_in(held) if part.finish is None else part.finish(part.held_in(held))
            for part in self.parts
        }

    def _begin(self) -> dict[str, Any]:
        return {part.name: part.aggregation.initializer() for part in self.parts}

    def _add(self, key: Any, value: Any, held: Mapping[str, Any]) -> dict[str, Any]:
        return {part.name: part.add(key, value, part.held_in(held)) for part in self.parts}

    def _merge(self, key: Any, one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
        return {part.name: part.merge(key, part.held_in(one), part.held_in(other)) for part in self.parts}


def _type_of(column: ColumnOrFunction | None, serde: Serde[Any] | None) -> pa.DataType | None:
    return serde.types.get(column) if isinstance(serde, RowSerde) and isinstance(column, str) else None


def _problems(aggregates: Mapping[str, Aggregate], serde: Serde[Any] | None) -> Iterator[str]:
    if not isinstance(aggregates, Mapping) or not aggregates:
        yield f'they must be a dict such as {{"total": Aggregate.sum("amount")}}, not {aggregates!r}'
        return
    for name, asked in aggregates.items():
        if not isinstance(name, str) or not name:
            yield f"{name!r} is not a column name"
        elif not isinstance(asked, Aggregate):
            yield f"{name!r} is {asked!r}, not an Aggregate such as Aggregate.sum(...)"
        elif isinstance(asked.column, str):
            yield from (f"{name!r}: {problem}" for problem in _problems_of_column(asked, asked.column, serde))
        elif asked.column is not None and not callable(asked.column):
            yield f"{name!r}: {asked.column!r} is neither a column name nor a function"


def _problems_of_column(asked: Aggregate, column: str, serde: Serde[Any] | None) -> Iterator[str]:
    if isinstance(serde, RowSerde):
        type_, rule = serde.types.get(column), asked.rule
        if type_ is None:
            yield f"there is no column {column!r} in the values; there are {', '.join(serde.types)}"
        elif not rule.takes.has(type_):
            yield f"{rule.function}() takes {rule.takes.words}, but column {column!r} is {type_}: cast it"
    elif serde is not None and not is_json(serde) and serde == STANDARD_SERDES.get(serde.name):
        yield (
            f"values are {serde.name} and have no column {column!r}: make the values dicts, in a DataFrame with "
            f"value=[{column!r}, ...], or give a function of the value"
        )
