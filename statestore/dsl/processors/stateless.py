"""Steps without state: each record by itself, its headers as they came. Source: Kafka's KStreamFilter and its kin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from sys import getsizeof
from typing import Any, Final, NamedTuple, TypeAlias

from statestore.dsl.functions import Function, pair
from statestore.dsl.processors.aggregating_columns import with_keys
from statestore.format.binary_columns import row_sizes
from statestore.format.serde import Serde, as_read, column_of
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS, BatchProcessor, Processor
from statestore.processor.record import Record

Pair: TypeAlias = "tuple[Any, Any]"

_ROWS_MAX: Final = 8192
_BYTES_MAX: Final = 8 << 20
"""New records go on in parts of about this size or number at most: one record may become any number of them."""
_LOOK_AFTER: Final = 256
"""How many are made between two looks at their size."""


class StatelessStep(NamedTuple):
    """A step's rule: the pairs of key and value that it makes of a user's function, a key and a value."""

    pairs: Callable[[Function, Any, Any], Sequence[Pair]]
    makes_keys: bool = False
    makes_values: bool = False


class Stateless(Processor):
    """Runs a step record by record.

    With serdes for the keys and values that it makes, it forwards what these read of what they write.
    """

    def __init__(
        self, step: StatelessStep, function: Function, keys: Serde[Any] | None = None, values: Serde[Any] | None = None
    ) -> None:
        self._step, self._function = step, function
        self._keys, self._values = (keys if step.makes_keys else None), (values if step.makes_values else None)

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        """Forward what is made of a record."""
        step, forward = self._step, self._context.forward
        for key, value in step.pairs(self._function, record.key, record.value):
            if self._keys is not None:
                key = as_read(self._keys, key)
            if self._values is not None:
                value = as_read(self._values, value)
            if step.makes_keys:
                forward(Record(key, value, record.timestamp_ms, record._headers))
            else:
                forward(record.with_value(value) if step.makes_values else record)


class StatelessColumns(Stateless, BatchProcessor):
    """Runs a step over columns, too; it needs the serdes of what it makes."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward what is made of the records."""
        for rows, keys, values in self._made_of(records):
            made = records if len(rows) == len(records) and rows == [*range(len(rows))] else records.take(rows)
            key = made.key if self._keys is None else column_of(self._keys, keys)
            value = made.value if self._values is None else column_of(self._values, values)
            if key is not None and value is not None:
                columns = made.timestamp_ms, made.headers, made.origin
                self._context.forward_batch(RecordColumns.adopt(key, value, *columns))
            else:  # whoever writes them says whether that matters
                keys = keys if self._keys is None else [as_read(self._keys, each) for each in keys]
                values = values if self._values is None else [as_read(self._values, each) for each in values]
                self._context.forward_rows(made, keys, values)

    def _made_of(self, records: RecordColumns) -> Iterator[tuple[list[int], list[Any], list[Any]]]:
        """Yield what is made of the records, in parts: the row that each came from, its key and its value."""
        pairs, function, row = self._step.pairs, self._function, 0
        made: tuple[list[int], list[Any], list[Any]] = ([], [], [])
        rows, keys, values = made
        first_look = header_bytes = size_bytes = 0
        if self._step.makes_values:  # else values are those that came
            first_look, header_bytes = _LOOK_AFTER, int(row_sizes(records.headers).max()) * _LOOK_AFTER
        look_at = first_look
        try:
            for row, (came_key, came_value) in enumerate(_pairs(records)):
                for key, value in pairs(function, came_key, came_value):
                    rows.append(row)
                    keys.append(key)
                    values.append(value)
                    if len(rows) == look_at:
                        size_bytes += sum(map(getsizeof, values[-_LOOK_AFTER:])) + header_bytes
                        look_at += _LOOK_AFTER
                        if look_at > _ROWS_MAX or size_bytes > _BYTES_MAX:
                            yield made
                            rows, keys, values = made = [], [], []
                            look_at, size_bytes = first_look, 0
        except Exception as cause:
            self._context.fail_on(records, row, cause)
        if rows:
            yield made


def _filtered(predicate: Function, key: Any, value: Any) -> Sequence[Pair]:
    return ((key, value),) if predicate(key, value) else ()


def _filtered_out(predicate: Function, key: Any, value: Any) -> Sequence[Pair]:
    return () if predicate(key, value) else ((key, value),)


def _peeked(action: Function, key: Any, value: Any) -> Sequence[Pair]:
    action(key, value)
    return ((key, value),)


def _shown(action: Function, key: Any, value: Any) -> Sequence[Pair]:
    action(key, value)
    return ()


def _with_value(mapper: Function, key: Any, value: Any) -> Sequence[Pair]:
    return ((key, mapper(key, value)),)


def _with_values(mapper: Function, key: Any, value: Any) -> Sequence[Pair]:
    values = mapper(key, value)
    if isinstance(values, (str, bytes)):  # or each letter would be a value
        raise TypeError(f"flat_map_values() wants a function that returns several values, not {type(values).__name__}")
    return [(key, made) for made in values]


def _with_key(mapper: Function, key: Any, value: Any) -> Sequence[Pair]:
    return ((mapper(key, value), value),)


def _with_key_and_value(mapper: Function, key: Any, value: Any) -> Sequence[Pair]:
    return (pair("map()", mapper(key, value)),)


def _with_keys_and_values(mapper: Function, key: Any, value: Any) -> Sequence[Pair]:
    return [pair("flat_map()", made) for made in mapper(key, value)]


FILTER: Final = StatelessStep(_filtered)
FILTER_NOT: Final = StatelessStep(_filtered_out)
PEEK: Final = StatelessStep(_peeked)
FOREACH: Final = StatelessStep(_shown)
MAP_VALUES: Final = StatelessStep(_with_value, makes_values=True)
FLAT_MAP_VALUES: Final = StatelessStep(_with_values, makes_values=True)
SELECT_KEY: Final = StatelessStep(_with_key, makes_keys=True)
MAP: Final = StatelessStep(_with_key_and_value, makes_keys=True, makes_values=True)
FLAT_MAP: Final = StatelessStep(_with_keys_and_values, makes_keys=True, makes_values=True)


class Branching(Processor):
    """Sends each record to the child of the first predicate that is true, else to `default`, if there is one."""

    def __init__(self, branches: Sequence[tuple[Function, str]], default: str | None) -> None:
        self._branches, self._default = branches, default

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a record to one child, or to none."""
        child = self._child(record.key, record.value)
        if child is not None:
            self._context.forward(record, child)

    def _child(self, key: Any, value: Any) -> str | None:
        return next((child for test, child in self._branches if test(key, value)), self._default)


class BranchingColumns(Branching, BatchProcessor):
    """Does the same with columns."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward to each child its records."""
        rows: dict[str | None, list[int]] = {}
        row = 0
        try:
            for row, (key, value) in enumerate(_pairs(records)):
                rows.setdefault(self._child(key, value), []).append(row)
        except Exception as cause:
            self._context.fail_on(records, row, cause)
        rows.pop(None, None)
        for child, of_child in rows.items():
            self._context.forward_batch(records.take(of_child), child)


class PassThrough(Processor):
    """Lets every record pass: where streams meet. Kafka's PassThrough."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record."""
        self._context.forward(record)


class PassThroughColumns(PassThrough, BatchProcessor):
    """Does the same with columns."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the records."""
        self._context.forward_batch(records)


class WithKey(PassThrough):
    """Lets records with a key pass, and counts the others, which Kafka does not."""

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record, or count it."""
        if record.key is None:
            self._context.count(DROPPED_RECORDS)
        else:
            self._context.forward(record)


class WithKeyColumns(WithKey, BatchProcessor):
    """Does the same with columns."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward those with a key."""
        self._context.forward_batch(with_keys(records, self._context, needs_value=False))


def _new_value(key: Any, change: Any) -> Any:
    return change.new


class NewValue(Stateless):
    """Forwards the new values of changes."""

    def __init__(self) -> None:
        super().__init__(MAP_VALUES, _new_value)


class NewValueColumns(NewValue, BatchProcessor):
    """Does the same with columns."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the new values."""
        new, columns = records.value.storage.field("new"), (records.timestamp_ms, records.headers, records.origin)
        self._context.forward_batch(RecordColumns.adopt(records.key, new, *columns))


def _pairs(records: RecordColumns) -> Iterator[Pair]:
    return zip(records.key.to_pylist(), records.value.to_pylist(), strict=True)
