"""What a connector's configuration says about transformations. The rest has no effect, and is warned of.

Source: Kafka Connect's `ConnectorConfig`, `SourceConnectorConfig` and `SinkConnectorConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from statestore.connect.config import (
    ConfigDef,
    ConfigType,
    Properties,
    Property,
    invalid,
    warn_of_meaningless,
    warn_of_unknown,
)
from statestore.connect.converters.base import MODE
from statestore.connect.properties_text import config_of, read_properties
from statestore.connect.transforms import field_steps, topic_steps, value_steps
from statestore.connect.transforms import header_steps as steps
from statestore.connect.transforms.field_moves import HeaderFromKey, HeaderFromValue, HeaderToKey, HeaderToValue
from statestore.connect.transforms.timestamp_converter import TimestampConverter
from statestore.connect.transforms.transformation import Configured, Predicate, Step, Transformation
from statestore.errors import ConfigException, ConnectException

_PACKAGE: Final = "org.apache.kafka.connect.transforms"
TRANSFORMATIONS: Final[dict[str, type[Transformation]]] = {
    f"{_PACKAGE}.DropHeaders": steps.DropHeaders,
    f"{_PACKAGE}.Filter": steps.Filter,
    f"{_PACKAGE}.HeaderFrom$Key": HeaderFromKey,
    f"{_PACKAGE}.HeaderFrom$Value": HeaderFromValue,
    f"{_PACKAGE}.HeaderTo$Key": HeaderToKey,
    f"{_PACKAGE}.HeaderTo$Value": HeaderToValue,
    f"{_PACKAGE}.InsertHeader": steps.InsertHeader,
    **{
        f"{_PACKAGE}.{kind.__name__}${side.side.title()}": side
        for kind in (
            field_steps.ExtractField,
            field_steps.HoistField,
            field_steps.InsertField,
            field_steps.ReplaceField,
            value_steps.Cast,
            value_steps.Flatten,
            value_steps.MaskField,
            value_steps.SetSchemaMetadata,
            TimestampConverter,
        )
        for side in (kind.Key, kind.Value)
    },
    f"{_PACKAGE}.RegexRouter": topic_steps.RegexRouter,
    f"{_PACKAGE}.TimestampRouter": topic_steps.TimestampRouter,
    f"{_PACKAGE}.ValueToKey": field_steps.ValueToKey,
}
PREDICATES: Final[dict[str, type[Predicate]]] = {
    f"{_PACKAGE}.predicates.HasHeaderKey": steps.HasHeaderKey,
    f"{_PACKAGE}.predicates.RecordIsTombstone": steps.RecordIsTombstone,
    f"{_PACKAGE}.predicates.TopicNameMatches": topic_steps.TopicNameMatches,
}

_OTHERS: Final = (
    "name",
    "config.action.reload",
    "connector.class",
    "connector.plugin.version",
    "errors.log.enable",
    "errors.log.include.messages",
    "errors.retry.delay.max.ms",
    "errors.retry.timeout",
    "errors.tolerance",
    "exactly.once.support",
    "header.converter",
    "key.converter",
    "offsets.storage.topic",
    "tasks.max",
    "tasks.max.enforce",
    "topics",
    "topics.regex",
    "transaction.boundary",
    "transaction.boundary.interval.ms",
    "value.converter",
)
"""Properties of every connector that have nothing to do with transformations; some who make chains read them."""
_OTHER_PREFIXES: Final = (
    "admin.override.",
    "consumer.override.",
    "errors.deadletterqueue.",
    "header.converter.",
    "key.converter.",
    "producer.override.",
    "topic.creation.",
    "value.converter.",
)
_PLUGIN_VERSION: Final = "plugin.version"
"""Kafka has it beside each type. Here there is one version of each, so it does not matter."""


def _aliases(name: str, value: Any) -> Any:
    for alias in value or ():
        if not alias:
            raise ConfigException(f"Configuration '{name}' values must not be empty.", name=name, value=value)
    if len(set(value or ())) < len(value or ()):
        raise invalid(name, value, "Duplicate alias provided.")
    return value or []


_STEPS: Final = ConfigDef(
    Property("transforms", ConfigType.LIST, default=(), rule=_aliases, doc="aliases of transformations, in order"),
    Property("predicates", ConfigType.LIST, default=(), rule=_aliases, doc="aliases of predicates"),
)
_OF_STEP: Final = ConfigDef(
    Property("predicate", default=None, doc="alias of the predicate that says which records it is for"),
    Property("negate", ConfigType.BOOLEAN, default=False, doc="whether it is for the others"),
)


def connector_properties(config: str | Mapping[str, Any]) -> Properties:
    """Return the properties of a connector, from text or a mapping. Raises ConfigException if they can't be read."""
    if isinstance(config, Properties):
        return config
    return Properties(read_properties(config) if isinstance(config, str) else config_of(config))


def read_steps(config: str | Mapping[str, Any], mode: str, also_read: Sequence[str] = ()) -> tuple[Step, ...]:
    """Return the steps that a connector's configuration asks for. Raises ConfigException with the full property.

    Warns of what does nothing; `also_read` are properties that the caller reads, with all below them.
    """
    properties = connector_properties(config)
    names = _STEPS.parse(properties, warn=False)
    _warn_of_others(properties, names, also_read)
    predicates = {
        alias: _make(Predicate, PREDICATES, properties.below(f"predicates.{alias}."), mode)
        for alias in names["predicates"]
    }
    return tuple(
        _step(alias, properties.below(f"transforms.{alias}."), predicates, mode) for alias in names["transforms"]
    )


def _step(alias: str, properties: Properties, predicates: Mapping[str, Predicate], mode: str) -> Step:
    gate = _OF_STEP.parse(properties, warn=False)
    named = gate["predicate"]
    if named is None and "negate" in properties:
        negate, predicate = properties.full_name("negate"), properties.full_name("predicate")
        raise ConfigException(
            f"Config '{negate}' was provided but there is no config '{predicate}' defining a predicate to be negated.",
            name=negate,
            value=properties["negate"],
        )
    if named is not None and named not in predicates:
        known = f"those of 'predicates' are: {', '.join(predicates) or 'none'}"
        raise invalid(properties.full_name("predicate"), named, f"There is no predicate of this alias; {known}")
    made = _make(Transformation, TRANSFORMATIONS, properties.without("predicate", "negate"), mode)
    return Step(alias, made, None if named is None else predicates[named], bool(gate["negate"]))


def _make(kind: type[Configured], known: Mapping[str, Any], properties: Properties, mode: str) -> Any:
    type_property = Property("type", ConfigType.CLASS, classes=known, doc=f"class of the {kind.__name__.lower()}")
    found = ConfigDef(type_property).parse(properties, warn=False)["type"]
    own = properties.without("type", _PLUGIN_VERSION)
    if isinstance(found, kind):
        warn_of_unknown(map(own.full_name, own), [])
        return found
    if not isinstance(found, type) or not issubclass(found, kind):
        raise invalid(properties.full_name("type"), found, f"Not a {kind.__name__}")
    if MODE in found.config.names and MODE not in own:
        own = Properties({**own, MODE: mode}, own.prefix)
    try:
        return found.from_properties(own)
    except ConnectException as error:
        name, value = (error.name, error.value) if isinstance(error, ConfigException) else (None, None)
        if name is not None and name.startswith(own.prefix):
            raise
        full_name = own.full_name(name) if name else own.prefix.removesuffix(".")
        raise ConfigException(f"{full_name}: {error.problem}", name=full_name, value=value) from error


def _warn_of_others(properties: Properties, names: Mapping[str, list[str]], also_read: Sequence[str]) -> None:
    """Warn of properties that belong to no step or predicate; those warn of their own."""
    read = [f"{kind}.{alias}." for kind, aliases in names.items() for alias in aliases]
    read += [f"{name}." for name in also_read]
    others = [name for name in properties if name not in (*names, *also_read) and not name.startswith(tuple(read))]
    known = [name for name in others if name in _OTHERS or name.startswith(_OTHER_PREFIXES)]
    for name in others:
        if name not in known:
            warn_of_unknown([name], [*names, *_OTHERS, *_likely_names(name, names)])
    warn_of_meaningless(known)


def _likely_names(name: str, names: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a name with each known alias in place of its own."""
    kind, _, rest = name.partition(".")
    for alias in names.get(kind, []):
        yield f"{kind}.{alias}.{rest.partition('.')[2]}"
