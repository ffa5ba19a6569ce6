"""What a transformation and a predicate are, and how they are made of properties.

Both are values: what they are told they are told when they are made, and it stays. Source: Kafka Connect's
`Transformation` and `Predicate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from statestore.connect.config import ConfigDef, ConfigType, Property
from statestore.connect.records import ConnectRecord

_Configured = TypeVar("_Configured", bound="Configured")


class Configured:
    """Something with properties. Each is an attribute, and an argument, of its name with "_" in place of "."."""

    config: ClassVar[ConfigDef] = ConfigDef()
    """The properties that there are."""

    @classmethod
    def from_properties(cls: type[_Configured], properties: Mapping[str, Any]) -> _Configured:
        """Make one. Raises ConfigException if a property is missing or wrong; warns of names that it does not know."""
        return cls(**{attribute_of(name): value for name, value in cls.config.parse(properties).items()})

    def close(self) -> None:
        """Release what it holds, which is nothing unless it says so."""

    def describe(self) -> str:
        """Return what it is and its properties, such as "InsertHeader(header=a, value.literal=1)"."""
        shown = [(known, getattr(self, attribute_of(known.name), known.default)) for known in self.config.properties]
        set_ones = (f"{known.name}={_shown(value)}" for known, value in shown if value != known.default)
        return f"{type(self).__name__}({', '.join(set_ones)})"

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

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return the record to go on with, None to go on with none. The record itself is not to be changed."""


class Predicate(Configured, ABC):
    """Says of each record whether a transformation is for it."""

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Return whether it is."""


def attribute_of(name: str) -> str:
    """Return the attribute that holds a property."""
    return name.replace(".", "_")


def list_property(name: str, rule: Any, doc: str, **facts: Any) -> Property:
    """Return a property that is a list of names."""
    return Property(name, ConfigType.LIST, rule=rule, doc=doc, **facts)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
