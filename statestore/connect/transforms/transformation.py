"""What a transformation, a predicate and a step of both are, and how they are made of properties.

They are values: their properties are set when they are made, and never change. One that looks only at headers, topics
and whether there is a value can also work on many records at once, with `apply_columns` beside `apply`, or
`test_columns` beside `test`. Source: Kafka Connect's `Transformation` and `Predicate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect.config import ConfigDef
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.records import ConnectRecord
from statestore.format.binary_columns import Flags, Integers

_Configured = TypeVar("_Configured", bound="Configured")


@dataclass(frozen=True)
class HeaderRows:
    """What steps on columns see of records, in order."""

    headers: pa.ListArray
    topics: pa.DictionaryArray
    """Those that steps have given them; null where a record has none."""
    origins: pa.DictionaryArray
    """Those that they came from, which headers are written for."""
    timestamps_ms: pa.Int64Array
    """Null where a record has none."""
    has_value: Flags
    numbers: Integers = field(repr=False)
    """The numbers of these rows in what the chain was given."""

    def only(self, kept: Flags) -> HeaderRows:
        """Return the rows for which `kept` is true."""
        mask = pa.array(kept)
        return HeaderRows(
            self.headers.filter(mask),
            self.topics.filter(mask),
            self.origins.filter(mask),
            self.timestamps_ms.filter(mask),
            self.has_value[kept],
            self.numbers[kept],
        )

    def with_topics(self, topics: pa.StringArray, chosen: Flags | None) -> HeaderRows:
        """Return the rows with other topics where they are chosen."""
        if chosen is not None:
            topics = pc.if_else(pa.array(chosen), topics, self.topics.cast(pa.string()))
        return replace(self, topics=topics.dictionary_encode())

    def by_topic(self, of_topic: Callable[[str | None], Any], chosen: Flags | None, type_: pa.DataType) -> pa.Array:
        """Return for each row what a function makes of its topic; it is asked once for each topic of chosen rows."""
        return _by_topic(self.topics, of_topic, chosen, type_)

    def by_origin(self, of_topic: Callable[[str | None], Any], chosen: Flags | None, type_: pa.DataType) -> pa.Array:
        """Return what `by_topic` does, of the topic that each came from."""
        return _by_topic(self.origins, of_topic, chosen, type_)


class Configured:
    """Something with properties. Each is an attribute, and an argument, of its name with "_" in place of "."."""

    config: ClassVar[ConfigDef] = ConfigDef()
    """The properties that there are."""
    _methods: ClassVar[tuple[str, str]]
    """The names of the methods for a record, and for columns."""

    @classmethod
    def from_properties(cls: type[_Configured], properties: Mapping[str, Any]) -> _Configured:
        """Make one. Raises ConfigException if a property is missing or wrong; warns of names that it does not know."""
        return cls(**{attribute_of(name): value for name, value in cls.config.parse(properties).items()})

    def close(self) -> None:
        """Release what it holds; by default nothing."""

    def describe(self) -> str:
        """Return what it is and its properties, such as "InsertHeader(header=a, value.literal=1)"."""
        shown = [(known, getattr(self, attribute_of(known.name), known.default)) for known in self.config.properties]
        set_ones = (f"{known.name}={_shown(value)}" for known, value in shown if value != known.default)
        return f"{type(self).__name__}({', '.join(set_ones)})"

    @property
    def takes_columns(self) -> bool:
        """Whether the class that says what is done to a record says it of columns, too."""
        by_record, by_columns = self._methods
        owner = next(kind for kind in type(self).__mro__ if by_record in vars(kind))
        return by_columns in vars(owner)

    def _settle(self) -> None:
        """Check what the arguments of a frozen dataclass were, and keep them in their types."""
        given = {known.name: getattr(self, attribute_of(known.name)) for known in self.config.properties}
        for name, value in self.config.parse(given, warn=False).items():
            object.__setattr__(self, attribute_of(name), tuple(value) if isinstance(value, list) else value)


class Transformation(Configured, ABC):
    """Makes of each record another one.

    For one of your own, make a frozen dataclass with the names of `config` for its fields, and say its class
    in the property `type` as "module:Class"; or put an object of it into a chain. A chain that Spark runs is pickled.
    """

    _methods = ("apply", "apply_columns")
    may_route: ClassVar[bool] = False
    """Whether it gives records other topics, which a query's columns of records can't have."""

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return the record to go on with, None to go on with none. The record itself is not to be changed."""

    def apply_columns(self, rows: HeaderRows, chosen: Flags | None, converter: HeaderConverter) -> HeaderRows:
        """Do what `apply` does, to the rows that are chosen; None is all. Headers are written with the converter."""
        raise NotImplementedError


class Predicate(Configured, ABC):
    """Says of each record whether a transformation is for it."""

    _methods = ("test", "test_columns")

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Return whether it is."""

    def test_columns(self, rows: HeaderRows) -> Flags:
        """Return for each row what `test` returns of its record."""
        raise NotImplementedError


@dataclass(frozen=True)
class Step:
    """A transformation in a chain.

    Args:
        alias: what the chain's properties call it.
        transformation: what is done.
        predicate: whether it is done to a record; None is always.
        negate: whether it is done to the records that the predicate is not true of.
    """

    alias: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return what the transformation makes of a record, or the record if it is not for it."""
        if self.predicate is not None and self.predicate.test(record) is self.negate:
            return record
        return self.transformation.apply(record)

    @property
    def takes_columns(self) -> bool:
        """Whether it can be done to columns, without an object for each record."""
        return self.transformation.takes_columns and (self.predicate is None or self.predicate.takes_columns)

    def apply_columns(self, rows: HeaderRows, converter: HeaderConverter) -> HeaderRows:
        """Do what `apply` does to many records."""
        chosen = None if self.predicate is None else self.predicate.test_columns(rows) != self.negate
        return self.transformation.apply_columns(rows, chosen, converter)

    def describe(self) -> str:
        """Return what it does, such as "a: Filter() unless HasHeaderKey(name=x)"."""
        said = f"{self.alias}: {self.transformation.describe()}"
        if self.predicate is None:
            return said
        return f"{said} {'unless' if self.negate else 'if'} {self.predicate.describe()}"


def _by_topic(
    topics: pa.DictionaryArray, of_topic: Callable[[str | None], Any], chosen: Flags | None, type_: pa.DataType
) -> pa.Array:
    indices = pc.fill_null(topics.indices, len(topics.dictionary)).to_numpy(zero_copy_only=False)
    names = [*topics.dictionary.to_pylist(), None]
    made = [None] * len(names)
    for index in np.unique(indices if chosen is None else indices[chosen]).tolist():
        made[index] = of_topic(names[index])
    return pa.array(made, type_).take(pa.array(indices))


def attribute_of(name: str) -> str:
    """Return the attribute that holds a property."""
    return name.replace(".", "_")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
