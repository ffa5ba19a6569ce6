"""What turns typed headers into bytes and back: the interface of all header converters.

Source: KIP-145's `HeaderConverter`; Kafka Connect's `ConverterConfig`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, TypeVar

from statestore.connect.config import ConfigDef, Property, one_of
from statestore.connect.schema import Schema, SchemaAndValue

MODE: Final = "mode"
STRICT_MODE: Final = "strict"
COMPAT_MODE: Final = "compat"

TYPE_PROPERTY: Final = Property(
    "converter.type", default="header", rule=one_of("key", "value", "header"), doc="What is converted; headers here."
)
MODE_PROPERTY: Final = Property(
    MODE,
    default=STRICT_MODE,
    rule=one_of(STRICT_MODE, COMPAT_MODE),
    doc="Of statestore alone: strict refuses what Kafka would lose or make up, compat does all as Kafka does.",
)

_Converter = TypeVar("_Converter", bound="HeaderConverter")


class HeaderConverter(ABC):
    """Turns typed headers into bytes and back. Configured once, before its first use; not for several threads.

    Your own one defines `to_connect_header` and `from_connect_header`, and `config` if it has properties. Their values
    are in `settings`.
    """

    _settings: dict[str, Any] | None = None

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        """Return what the bytes of a header stand for; None is Java's null. Raises DataException for others."""

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return a header's value as bytes; None is a null. Raises DataException for a value that has no bytes."""

    def config(self) -> ConfigDef:
        """Return the properties that it has."""
        return ConfigDef(TYPE_PROPERTY, MODE_PROPERTY)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read its properties, named without "header.converter.". Raises ConfigException; warns of unknown names."""
        self._settings = self.config().parse(properties)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The properties by name, read as their types; defaults if it was not configured."""
        if self._settings is None:
            self.configure({})
        assert self._settings is not None, "configure() was overridden, and did not call this class's"
        return self._settings

    @property
    def is_strict(self) -> bool:
        """Whether to refuse what Kafka would lose or make up."""
        return bool(self.settings[MODE] == STRICT_MODE)

    def close(self) -> None:  # noqa: B027  most have nothing to let go of
        """Let go of what it holds. Nothing is to be called afterwards."""

    def __enter__(self: _Converter) -> _Converter:
        """Return it; it is closed when the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
