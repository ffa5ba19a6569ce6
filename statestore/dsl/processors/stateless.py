"""Steps without state: each record by itself, its headers as they came. Source: Kafka's KStreamFilter and its kin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from statestore.dsl.functions import Function, pair
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.record import Record

Records: TypeAlias = "Iterable[Record[Any, Any]]"


class Stateless(Processor):
    """Forwards what `step` makes of `function` and each record."""

    def __init__(self, step: Callable[[Function, Record[Any, Any]], Records], function: Function) -> None:
        self._step, self._function = step, function

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._forward = context.forward

    def process(self, record: Record[Any, Any]) -> None:
        """Forward what is made of a record."""
        for made in self._step(self._function, record):
            self._forward(made)


def filtered(predicate: Function, record: Record[Any, Any]) -> Records:
    """Return the record if a predicate of key and value is true."""
    return (record,) if predicate(record.key, record.value) else ()


def filtered_out(predicate: Function, record: Record[Any, Any]) -> Records:
    """Return the record if a predicate of key and value is false."""
    return () if predicate(record.key, record.value) else (record,)


def with_value(mapper: Function, record: Record[Any, Any]) -> Records:
    """Return the record with another value, a function of key and value."""
    return (record.with_value(mapper(record.key, record.value)),)


def with_values(mapper: Function, record: Record[Any, Any]) -> Records:
    """Return a record of each value that a function of key and value returns."""
    return [record.with_value(value) for value in mapper(record.key, record.value)]


def with_key(mapper: Function, record: Record[Any, Any]) -> Records:
    """Return the record with another key, a function of key and value."""
    return (record.with_key(mapper(record.key, record.value)),)


def with_key_and_value(mapper: Function, record: Record[Any, Any]) -> Records:
    """Return the record with another key and value: a function of both returns both."""
    key, value = pair("map()", mapper(record.key, record.value))
    return (record.with_key(key).with_value(value),)


def with_keys_and_values(mapper: Function, record: Record[Any, Any]) -> Records:
    """Return a record of each key and value that a function of both returns."""
    pairs = (pair("flat_map()", made) for made in mapper(record.key, record.value))
    return [record.with_key(key).with_value(value) for key, value in pairs]


def peeked(action: Function, record: Record[Any, Any]) -> Records:
    """Call a function with key and value, and return the record as it is."""
    action(record.key, record.value)
    return (record,)


def shown(action: Function, record: Record[Any, Any]) -> Records:
    """Call a function with key and value, and return nothing."""
    action(record.key, record.value)
    return ()


class Branching(Processor):
    """Sends each record to the child of the first predicate that is true, else to `default`, if there is one."""

    def __init__(self, branches: Sequence[tuple[Function, str]], default: str | None) -> None:
        self._branches, self._default = branches, default

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._forward = context.forward

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a record to one child, or to none."""
        child = next((child for test, child in self._branches if test(record.key, record.value)), self._default)
        if child is not None:
            self._forward(record, child)


class PassThrough(Processor):
    """Lets every record pass: where streams meet. Kafka's PassThrough."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._forward = context.forward

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record."""
        self._forward(record)


def new_value(key: Any, change: Any) -> Any:
    """Return the new value of a change."""
    return change.new


class PassThroughColumns(BatchProcessor):
    """Lets every record pass."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._forward = context.forward_batch

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the records."""
        self._forward(records)


class NewValueColumns(PassThroughColumns):
    """Forwards the new values of changes."""

    def process_batch(self, records: RecordColumns) -> None:
        """Forward the new values."""
        new = records.value.storage.field("new")
        self._forward(RecordColumns.adopt(records.key, new, records.timestamp_ms, records.headers, records.origin))
