"""Header converters by name, as the property `header.converter` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from statestore.connect.config import ConfigDef, ConfigType, Properties, Property, invalid
from statestore.connect.converters.avro.avro_converter import AvroConverter
from statestore.connect.converters.base import MODE, STRICT_MODE, HeaderConverter
from statestore.connect.converters.json import JsonConverter
from statestore.connect.converters.simple import ByteArrayConverter, SimpleHeaderConverter, StringConverter

HEADER_CONVERTER: Final = "header.converter"
"""The property that names one; below it are its own."""
_SIMPLE: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_CONVERTERS: Final[dict[str, type[HeaderConverter]]] = {
    _SIMPLE: SimpleHeaderConverter,
    "org.apache.kafka.connect.storage.StringConverter": StringConverter,
    "org.apache.kafka.connect.json.JsonConverter": JsonConverter,
    "org.apache.kafka.connect.converters.ByteArrayConverter": ByteArrayConverter,
    "statestore.connect.AvroConverter": AvroConverter,  # Kafka has none
}
_ENDINGS: Final = ("HeaderConverter", "Converter")


def header_converter(
    properties: Mapping[str, Any] | str | HeaderConverter | None = None, *, mode: str = STRICT_MODE
) -> HeaderConverter:
    """Return the converter that properties ask for, configured: Kafka's SimpleHeaderConverter if they name none.

    Args:
        properties: `header.converter` is the converter: the name of Kafka's class, in full, without its package, or
            short (`Json`); "module:Class" for a class of yours; a class; an object, which is configured. Those that
            begin with `header.converter.` are its own. All others are ignored. A text, or a
            converter, stands for `header.converter` alone. A converter that is passed here is returned as it is.
        mode: what its property `mode` is if it is not set: "strict", or "compat" for all as Kafka does it.

    Raises ConfigException if the converter is unknown, and what its `configure` raises.
    """
    if isinstance(properties, HeaderConverter):
        return properties
    named = {HEADER_CONVERTER: properties} if isinstance(properties, str) else properties or {}
    given = named if isinstance(named, Properties) else Properties(named)
    chosen = _CHOICE.parse(given, warn=False)[HEADER_CONVERTER]
    converter = chosen() if isinstance(chosen, type) and issubclass(chosen, HeaderConverter) else chosen
    if not isinstance(converter, HeaderConverter):
        raise invalid(given.full_name(HEADER_CONVERTER), given[HEADER_CONVERTER], "it is not a HeaderConverter")
    own = given.below(f"{HEADER_CONVERTER}.")
    if MODE not in own and any(known.name == MODE for known in converter.config().properties):
        own = Properties({**own, MODE: mode}, own.prefix)
    converter.configure(own)
    return converter


def _aliases() -> dict[str, type[HeaderConverter]]:
    """Return the converters by all their names but those of classes without packages, which the full ones imply."""
    found: dict[str, type[HeaderConverter]] = dict(_CONVERTERS)
    for name, converter in _CONVERTERS.items():
        short = name.rpartition(".")[2]
        for ending in _ENDINGS:
            found.setdefault(short.removesuffix(ending), converter)
    return found


_CHOICE: Final = ConfigDef(
    Property(
        HEADER_CONVERTER,
        ConfigType.CLASS,
        default=SimpleHeaderConverter,
        doc="What converts headers.",
        classes=_aliases(),
    )
)
