"""ConnectIngest: what a connector's configuration says about records, done to those that come into a query."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from statestore.connect.config import ConfigDef, ConfigType, Property, one_of, warn_of_meaningless
from statestore.connect.converters.base import STRICT_MODE, HeaderConverter
from statestore.connect.converters.registry import HEADER_CONVERTER, header_converter
from statestore.connect.header import part_in_errors
from statestore.connect.records import SinkRecord
from statestore.connect.schema import Schema, SchemaAndValue
from statestore.connect.transforms.chain import ColumnChain, TransformChain
from statestore.connect.transforms.connector_config import connector_properties, read_steps
from statestore.connect.typed_headers import TypedHeaders
from statestore.errors import ConfigException
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.records import ConsumerRecord

_SIDES: Final = ("key.converter", "value.converter")
_ALL: Final = "all"
_TOLERANCE: Final = "errors.tolerance"
_TOPIC: Final = "errors.deadletterqueue.topic.name"
_CONTEXT: Final = "errors.deadletterqueue.context.headers.enable"
_LOG: Final = "errors.log.enable"
_MESSAGES: Final = "errors.log.include.messages"
_NAME: Final = "name"
_CONFIG: Final = ConfigDef(
    Property(_TOLERANCE, default="none", rule=one_of("none", _ALL), doc="all leaves out what fails"),
    Property(_TOPIC, default="", doc="the topic for dead letters; none if it is empty"),
    Property(_CONTEXT, ConfigType.BOOLEAN, default=False, doc="whether they say what was wrong"),
    Property(_LOG, ConfigType.BOOLEAN, default=False, doc="whether each record that is left out is logged"),
    Property(_MESSAGES, ConfigType.BOOLEAN, default=False, doc="Logs say where a record is, and never what it holds."),
    Property(_NAME, default=None, doc="what dead letters call the query"),
)


@dataclass(frozen=True)
class Tolerance:
    """What is done about records that can't be read or transformed, if the query does not say it."""

    is_on: bool = False
    topic: str = ""
    """The topic for dead letters, if it is on; "" if there is none, and records are left out."""
    name: str | None = None
    with_context: bool = False
    logs_all: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Tolerance:
        """Return what a connector's properties say. Raises ConfigException for a value that is wrong."""
        found = _CONFIG.parse(properties, warn=False)
        return cls(found[_TOLERANCE] == _ALL, found[_TOPIC] or "", found[_NAME], found[_CONTEXT], found[_LOG])

    @property
    def properties(self) -> tuple[str, ...]:
        """The names of the properties that have an effect, given the values of the others."""
        of_letters = (_TOPIC, _CONTEXT, _NAME) if self.is_on else ()
        return (_TOLERANCE, _LOG, _MESSAGES, *of_letters)

    def warn_of_topic(self) -> None:
        """Log a warning that the topic for dead letters does nothing: the query has another one."""
        warn_of_meaningless([_TOPIC])


class ConnectIngest:
    """A connector's configuration for a query: among the `interceptors` of `stateful()` and of a TopologyTestDriver.

    Its transformations (`transforms`, `predicates`) are done to each record before any source, and what they drop is
    left out. `header.converter` is what they read headers with, and what `ProcessorContext.typed_headers` reads with;
    headers that no step touches keep their bytes. `key.converter` and `value.converter` are for steps that look into
    keys and values, which are bytes otherwise; a value that no step touches keeps its bytes. A chain that looks at
    headers, topics and tombstones alone reads nothing, and runs on whole columns in a query that has columns.

    Keys, topics and partitions say which shard a record belongs to: a step that changes them ends the query.

    FailureHandling.deserialization of the query decides about records that converters can't read, its `refusal` about
    those that steps can't transform. Where the query does not say, `errors.tolerance` decides for all of it.
    """

    def __init__(
        self,
        config: str | Mapping[str, Any] = "",
        *,
        topics: Mapping[str, str | Mapping[str, Any] | HeaderConverter] | None = None,
        mode: str = STRICT_MODE,
    ) -> None:
        """Read a configuration.

        Args:
            config: a mapping, the text of a file of Java's properties, or JSON.
            topics: other converters for the headers of some topics: properties, a name, or a converter.
            mode: "strict", or "compat" to do all as Kafka does: for converters and steps without a mode of their own.

        Raises ConfigException, with the full name of the property, if one is missing or wrong. Warns of what does
        nothing here.
        """
        properties = connector_properties(config or {})
        self.tolerance: Final = Tolerance.of(properties)
        """What is done about records that fail, where the query does not say it."""
        also_read = [HEADER_CONVERTER, *_SIDES, *self.tolerance.properties]
        self.chain: Final = TransformChain(read_steps(properties, mode, also_read))
        self._names_of_converter: Final = [name for name in properties if name.startswith(HEADER_CONVERTER)]
        self._converter_of_topics: Final = {
            topic: header_converter(chosen, mode=mode) for topic, chosen in (topics or {}).items()
        }
        self._read_with(header_converter(properties, mode=mode))
        self._key, self._value = (_converter_of(side, properties, mode) for side in _SIDES)
        routes = any(step.transformation.may_route for step in self.chain.steps)
        self.is_in_columns: Final = self._columns.is_in_columns and not routes
        """Whether `ingest_columns` can be called. Columns could not show that a step has changed a topic."""

    def _read_with(self, converter: HeaderConverter) -> None:
        """Have headers read with a converter, but of topics that have one of their own."""
        self.header_converter: HeaderConverter = TopicHeaderConverter(converter, self._converter_of_topics)
        self._columns = ColumnChain(self.chain, self.header_converter)

    def with_default(self, converter: HeaderConverter) -> ConnectIngest:
        """Return this with a header converter for where the configuration names none, as Kafka's workers have one."""
        if HEADER_CONVERTER in self._names_of_converter:
            return self
        warn_of_meaningless(self._names_of_converter)
        made = copy.copy(self)
        made._read_with(converter)
        return made

    def __call__(self, record: ConsumerRecord[Any, Any]) -> ConsumerRecord[Any, Any] | None:
        """Return what the steps make of a record, None if one drops it. Raises what steps and converters raise."""
        if not self.chain.steps:
            return record
        topic = record.topic
        headers = TypedHeaders(record.headers, self.header_converter, topic)
        with part_in_errors("key", is_unreadable=True):
            key = _read(self._key, topic, record.key)
        with part_in_errors("value", is_unreadable=True):
            value = _read(self._value, topic, record.value)
        with part_in_errors(None):
            made = self.chain.apply(
                SinkRecord(
                    topic,
                    kafka_partition=record.partition,
                    kafka_offset=record.offset,
                    timestamp_type=record.timestamp_type,
                    key_schema=key.schema,
                    key=key.value,
                    value_schema=value.schema,
                    value=value.value,
                    timestamp_ms=record.timestamp_ms,
                    headers=headers.to_connect_headers(),
                )
            )
            if made is None:
                return None
            written = headers.write(made.headers)
        with part_in_errors("key"):
            key_bytes = _write(self._key, topic, key, made.key_schema, made.key, record.key)
        with part_in_errors("value"):
            value_bytes = _write(self._value, topic, value, made.value_schema, made.value, record.value)
        return ConsumerRecord(
            record.topic if made.topic is None else made.topic,
            record.partition if made.kafka_partition is None else made.kafka_partition,
            record.offset,
            key=key_bytes,
            value=value_bytes,
            timestamp_ms=record.timestamp_ms if made.timestamp_ms is None else made.timestamp_ms,
            timestamp_type=record.timestamp_type,
            headers=written,
        )

    def ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Return what the steps make of records in columns that have topics."""
        return self._columns.apply(records)

    def typed_headers(self, headers: Headers, topic: str) -> TypedHeaders:
        """Return headers of a record of a topic as its converter reads them."""
        return TypedHeaders(headers, self.header_converter, topic)

    def __repr__(self) -> str:
        return f"ConnectIngest({self.chain.describe()})"


class TopicHeaderConverter(HeaderConverter):
    """Reads and writes headers of some topics with converters of their own, and all others with one."""

    def __init__(self, otherwise: HeaderConverter, topics: Mapping[str, HeaderConverter]) -> None:
        self._otherwise = otherwise
        self._topics = dict(topics)

    def of(self, topic: str) -> HeaderConverter:
        """Return the converter of a topic."""
        return self._topics.get(topic, self._otherwise)

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        """Return what the topic's converter reads."""
        return self.of(topic).to_connect_header(topic, key, value)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return what the topic's converter writes."""
        return self.of(topic).from_connect_header(topic, key, schema, value)

    def close(self) -> None:
        """Close all of them."""
        for converter in (self._otherwise, *self._topics.values()):
            converter.close()


def _converter_of(side: str, properties: Mapping[str, Any], mode: str) -> HeaderConverter | None:
    """Return the converter of keys or values; None leaves them bytes."""
    if side not in properties:
        return None
    own = {
        name.replace(side, HEADER_CONVERTER, 1): value for name, value in properties.items() if name.startswith(side)
    }
    try:
        return header_converter(own, mode=mode)
    except ConfigException as error:
        name = None if error.name is None else error.name.replace(HEADER_CONVERTER, side)
        raise ConfigException(error.problem.replace(HEADER_CONVERTER, side), name=name, value=error.value) from error


def _read(converter: HeaderConverter | None, topic: str, data: bytes | None) -> SchemaAndValue:
    if converter is None:
        return SchemaAndValue(Schema.OPTIONAL_BYTES_SCHEMA, data)
    return converter.to_connect_header(topic, "", data) or SchemaAndValue(None, None)


def _write(
    converter: HeaderConverter | None,
    topic: str,
    read: SchemaAndValue,
    schema: Schema | None,
    value: Any,
    data: bytes | None,
) -> Any:
    """Return a key or value as bytes: the very same if no step has changed it."""
    if value is read.value and schema is read.schema:
        return data
    return value if converter is None else converter.from_connect_header(topic, "", schema, value)
