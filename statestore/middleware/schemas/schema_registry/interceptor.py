"""SchemaInterceptor: deposits schemas and says in headers which they are, for serdes that know of no registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DeserializationError
from statestore.errors.middleware import SchemaRefusedError, SchemaRejectedError
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.middleware.application import Application, options
from statestore.middleware.schemas.content_type import CONTENT_TYPE
from statestore.middleware.schemas.schema_registry.ids import VALUE_IDS, IdPlace, IdWriter, read_id, remove_ids
from statestore.middleware.schemas.schema_registry.kinds import AVRO, schema_of
from statestore.middleware.schemas.schema_registry.registry import SchemaRegistry
from statestore.middleware.schemas.schema_registry.serde import AnySchema, Subject, subject_of

if TYPE_CHECKING:
    from typing_extensions import Self


class SchemaInterceptor(Application):
    """Writes the id of a topic's schema beside values, and reads values of other schemas under the topic's.

    What is sent to one of its topics gets the id of the topic's schema. What comes from one is written anew under the
    topic's schema if another one has written it. Records of other topics, and those without a value, are left alone.
    """

    kind = "schema"
    _options = options(CLASS="registry!", LIST="schemas!", STRING="place")
    marks = (CONTENT_TYPE,)
    not_after: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("compression", "encryption", "slicing", "claim-check", "signing"),
        "it needs the value as the serde has written it, and changes it: put schema before",
    )
    goes_by = VALUE_IDS

    def __init__(
        self,
        registry: SchemaRegistry,
        schemas: Mapping[str, AnySchema],
        *,
        place: IdPlace = IdPlace.HEADER,
        subject: Subject = None,
    ) -> None:
        """Take the schema of the values of each topic; schemas, `place` and `subject` are as for `registry_serde`.

        Raises DataException if one is not a schema, ConfigException without fastavro, and ValueError for the schema
        "bytes", which nobody needs to write such values. In a configuration, `schemas` has topics and paths of files,
        as in `orders:/etc/schemas/order.avsc`, and `place` is "header", "prefix" or "md5".
        """
        self._registry = registry
        self._schemas = {topic: schema_of(schema) for topic, schema in schemas.items()}
        self._ids = IdWriter(place, for_key=False)
        self._subject = subject
        if any(schema.inner.is_bytes for schema in self._schemas.values() if schema.kind is AVRO):
            raise ValueError('values under the schema "bytes" stand as they are: send bytes, without this interceptor')

    @classmethod
    def _configured(
        cls, registry: Callable[[], SchemaRegistry], schemas: Iterable[str], place: str = IdPlace.HEADER.value
    ) -> Self:
        texts = {}
        for each in schemas:
            topic, _, path = each.partition(":")
            try:
                texts[topic] = Path(path).read_text(encoding="utf-8")
            except OSError as cause:
                raise ValueError(f"a schema is written topic:path, and {each!r} can't be read: {cause}") from cause
        return cls(registry(), texts, place=IdPlace(place))

    def on_emit(self, record: EmittedRecord) -> Sequence[EmittedRecord]:
        """Deposit the schema of the record's topic, and write its id. Raises what depositing raises: the query ends."""
        if record.topic not in self._schemas or record.value is None:
            return (record,)
        value = self._with_id(record.topic, record.headers, record.value)
        return (record,) if value is record.value else (record.copy(value=value),)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Do the same to records in columns: once for each of the topics."""
        for topic in () if records.topic is None else records.topic.unique().to_pylist():
            if topic not in self._schemas:
                continue
            rows = pc.and_(pc.equal(records.topic, topic), pc.is_valid(records.value))
            headers = Headers()
            prefix = self._with_id(topic, headers, b"")
            edited = records
            for name in (*(header.key for header in headers), *VALUE_IDS):
                edited = edited.without_header(name)
            for name, content in headers:
                edited = edited.with_header(name, content)
            changed = {"headers": pc.if_else(rows, edited.headers, records.headers)}
            if prefix:
                framed = pc.binary_join_element_wise(pa.scalar(prefix, records.value.type), records.value, b"")
                changed["value"] = pc.if_else(rows, framed, records.value)
            records = records.with_columns(**changed)
        return records

    def on_ingest(self, record: IngestedRecord) -> Sequence[IngestedRecord]:
        """Give the record a value that the serde of its topic's schema reads, and take out the id.

        Raises SchemaRefusedError if there is no id, no schema of it, or none that goes with the topic's.
        """
        schema = self._schemas.get(record.topic)
        if schema is None or record.value is None:
            return (record,)
        try:
            placed = read_id(record.headers, record.value, for_key=False)
            writer, datum = self._registry.get(placed.schema_id).of_record(placed)
            if (writer.registered, writer.behind_id) != (schema.registered, schema.behind_id):
                datum = schema.write(writer.read(schema, datum))
        except DeserializationError as cause:
            raise SchemaRefusedError(f"the value of a record from topic {record.topic!r}: {cause}") from cause
        remove_ids(record.headers, for_key=False)
        return (record,) if datum is record.value else (record.copy(value=datum),)

    def _with_id(self, topic: str, headers: Headers, value: bytes) -> bytes:
        schema = self._schemas[topic]
        subject = subject_of(self._registry, self._subject, topic, schema.name, for_key=False)
        ids = self._registry.deposit_if_new(subject, schema.registered)
        if ids.latest not in (None, schema.registered):
            raise SchemaRejectedError(subject, problem="its latest version is not the schema of the topic's values")
        return self._ids.write(ids, headers, schema.behind_id, value)

    def __repr__(self) -> str:
        return f"SchemaInterceptor({self._registry!r}, {sorted(self._schemas)})"
