"""Steps without state: each record by itself, its headers as they came. Source: Kafka's KStreamFilter and its kin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from statestore.processor.context import ProcessorContext
from statestore.processor.processor import Processor
from statestore.processor.record import Record

Predicate = Callable[[Any, Any], Any]


class _Mapping(Processor):
    """Forwards what a function makes of a record: records, none, one or several."""

    def __init__(self, function: Callable[[Record[Any, Any]], Iterable[Record[Any, Any]]]) -> None:
        self._function = function

    def init(self, context: ProcessorContext) -> None:
        self._forward = context.forward

    def process(self, record: Record[Any, Any]) -> None:
        for made in self._function(record):
            self._forward(made)


@dataclass(frozen=True)
class _Step:
    """What it takes to make a processor without state. Travels to the executors."""

    function: Callable[..., Any]

    def __call__(self) -> Processor:
        """Return a new processor."""
        return _Mapping(self._map)

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        raise NotImplementedError


@dataclass(frozen=True)
class Filtering(_Step):
    """Lets records pass for which a predicate of key and value is true, or if `is_negated` false."""

    is_negated: bool = False

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        return (record,) if bool(self.function(record.key, record.value)) is not self.is_negated else ()


@dataclass(frozen=True)
class MappingValues(_Step):
    """Gives records another value, a function of the one they have."""

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        return (record.with_value(self.function(record.value)),)


@dataclass(frozen=True)
class FlatMappingValues(_Step):
    """Makes a record of each value that a function returns."""

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        return [record.with_value(value) for value in self.function(record.value)]


@dataclass(frozen=True)
class SelectingKeys(_Step):
    """Gives records another key, a function of key and value."""

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        return (record.with_key(self.function(record.key, record.value)),)


@dataclass(frozen=True)
class Mapping(_Step):
    """Gives records another key and value: a function of both returns both."""

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        key, value = self.function(record.key, record.value)
        return (record.with_key(key).with_value(value),)


@dataclass(frozen=True)
class Peeking(_Step):
    """Shows a function key and value, and lets every record pass."""

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        self.function(record.key, record.value)
        return (record,)


@dataclass(frozen=True)
class Passing(_Step):
    """Lets every record pass: where streams meet. Kafka's PassThrough."""

    function: Callable[..., Any] = bool

    def _map(self, record: Record[Any, Any]) -> Iterable[Record[Any, Any]]:
        return (record,)


def new_value(change: Any) -> Any:
    """Return what a key of a table has become."""
    return change.new
