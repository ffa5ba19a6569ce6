"""Steps that choose, add and wrap fields of keys and values. Source: Kafka's classes of these names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, ClassVar, Final

from statestore.connect.config import (
    ConfigDef,
    ConfigType,
    Property,
    distinct_or_none,
    distinct_values,
    invalid,
    non_null,
    one_of,
)
from statestore.connect.records import ConnectRecord, SinkRecord
from statestore.connect.scalars import Instant, Int32, Int64
from statestore.connect.schema import Field, Schema, Struct, Type
from statestore.connect.transforms.sides import (
    NULLS,
    Sided,
    class_of,
    map_of,
    of_both_sides,
    require_map,
    require_struct,
    struct_schema,
    with_entries,
)
from statestore.errors import ConfigException, DataException


def _renames(name: str, value: list[str] | None) -> list[str]:
    for mapping in non_null(name, value):
        parts = mapping.split(":")
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        if len(parts) != 2:
            raise invalid(name, value, f"Invalid rename mapping: {mapping}")
    return list(value or ())


@of_both_sides
@dataclass(frozen=True)
class ReplaceField(Sided):
    """Leaves fields out, and gives others new names. None as a whole stays as it is.

    Raises, when applied, SchemaBuilderException or, without a schema, DataException if two fields would have one name,
    and DataException if a field has a new name without that it is one.
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    replace_null_with_default: bool = True
    names: Mapping[str, str] = attribute(init=False, repr=False, compare=False)
    """The new names, by the old ones."""
    purpose = "field replacement"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("exclude", ConfigType.LIST, default=(), rule=distinct_or_none, doc="names of fields to leave out"),
        Property(
            "include", ConfigType.LIST, default=(), rule=distinct_or_none, doc="names of those to keep; all, if none"
        ),
        Property("renames", ConfigType.LIST, default=(), rule=_renames, doc="old and new names, such as a:b, c:d"),
        NULLS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "names", dict(mapping.split(":")[:2] for mapping in self.renames))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the fields that are left."""
        schema, value = self.source_of(record)
        if value is None:
            return record
        if schema is None:
            given = self.require_map(value).items()
            return self.with_side(
                record, None, map_of([(self.names.get(name, name), each) for name, each in given if self._keeps(name)])
            )
        struct = self.require_struct(value)
        made = self.schema_from(struct.schema)
        old = {new: name for name, new in self.names.items()}
        return self.with_side(
            record,
            made,
            Struct(made, {each.name: self.field_value(struct, old.get(each.name, each.name)) for each in made.fields}),
        )

    def new_schema(self, schema: Schema) -> Schema:
        """Return a schema with the fields that are left."""
        kept = (each for each in schema.fields if self._keeps(each.name))
        return struct_schema(schema, [Field(self.names.get(each.name, each.name), each.schema) for each in kept])

    def _keeps(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)


@of_both_sides
@dataclass(frozen=True)
class InsertField(Sided):
    """Puts fields behind the others: where a record came from, and a text. None as a whole stays as it is.

    A field is optional, unless its name ends with "!"; "?" at its end says that it is. What a record lacks is left
    out; an offset must be there. Without a schema a field that is there is replaced.

    Raises ConfigException if there is no field. Raises, when applied, DataException for a record without an offset,
    SchemaBuilderException for a field that is there.
    """

    topic_field: str | None = None
    partition_field: str | None = None
    offset_field: str | None = None
    timestamp_field: str | None = None
    purpose = "field insertion"
    static_field: str | None = None
    static_value: str | None = None
    replace_null_with_default: bool = True
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("topic.field", default=None, doc="name of the field for the topic"),
        Property("partition.field", default=None, doc="name of the field for the partition"),
        Property("offset.field", default=None, doc="name of the field for the offset"),
        Property("timestamp.field", default=None, doc="name of the field for the timestamp"),
        Property("static.field", default=None, doc="name of the field for a text"),
        Property("static.value", default=None, doc="the text"),
        NULLS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if all(getattr(self, option) is None for option in _INSERTED):
            raise ConfigException("No field insertion configured")
        if self.static_field is not None and self.static_value is None:
            raise invalid("static.value", None, f"No value specified for static field: {self.static_field}")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the fields."""
        schema, value = self.source_of(record)
        if value is None:
            return record
        if schema is None:
            return self.with_side(record, None, with_entries(self.require_map(value), self._values(record, Int64)))
        struct = self.require_struct(value)
        kept = {each.name: self.field_value(struct, each.name) for each in struct.schema.fields}
        made = Struct(self.schema_from(struct.schema), {**kept, **self._values(record, Instant)})
        return self.with_side(record, made.schema, made)

    def new_schema(self, schema: Schema) -> Schema:
        """Return a schema with the fields."""
        added = [
            Field(name, type_ if is_required else type_.as_optional())
            for name, is_required, type_ in (
                (*_named(getattr(self, option)), type_) for option, type_ in _INSERTED.items()
            )
            if name is not None
        ]
        return struct_schema(schema, [*schema.fields, *added])

    def _values(self, record: ConnectRecord, time: Callable[[int], Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for option in _INSERTED:
            name, _ = _named(getattr(self, option))
            if name is None:
                continue
            if option == "topic_field":
                made[name] = record.topic
            elif option == "partition_field" and record.kafka_partition is not None:
                made[name] = Int32(record.kafka_partition)
            elif option == "offset_field":
                made[name] = Int64(self._offset(record))
            elif option == "timestamp_field" and record.timestamp_ms is not None:
                made[name] = time(record.timestamp_ms)
            elif option == "static_field":
                made[name] = self.static_value
        return made

    def _offset(self, record: ConnectRecord) -> int:
        if not isinstance(record, SinkRecord):
            raise DataException(f"Only SinkRecord supported for [{self.purpose}], found: {class_of(record)}")
        return record.kafka_offset


_INSERTED: Final = {
    "topic_field": Schema.STRING_SCHEMA,
    "partition_field": Schema.INT32_SCHEMA,
    "offset_field": Schema.INT64_SCHEMA,
    "timestamp_field": Schema.TIMESTAMP_SCHEMA,
    "static_field": Schema.STRING_SCHEMA,
}


def _named(spec: str | None) -> tuple[str | None, bool]:
    """Return the name of a field to put, and whether it is required."""
    if spec is not None and spec.endswith(("?", "!")):
        return spec[:-1], spec.endswith("!")
    return spec, False


@dataclass(frozen=True)
class ValueToKey(Sided, side="value"):
    """Makes a key of fields of the value. Raises, when applied, DataException for a field that its schema lacks."""

    fields: tuple[str, ...]
    replace_null_with_default: bool = True
    purpose = "copying fields from value to key"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("fields", ConfigType.LIST, rule=distinct_values, doc="names of fields of the value"), NULLS
    )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the key."""
        if record.value_schema is None:
            given = self.require_map(record.value)
            return record.new_record(key_schema=None, key={name: given.get(name) for name in self.fields})
        struct = self.require_struct(record.value)
        schema = self.schema_from(struct.schema)
        key = Struct(schema, {name: self.field_value(struct, name) for name in self.fields})
        return record.new_record(key_schema=schema, key=key, value_schema=struct.schema)

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema of keys."""
        found = {name: schema.field(name) for name in self.fields}
        for name, each in found.items():
            if each is None:
                raise DataException(f"Field does not exist: {name}")
        return Schema(Type.STRUCT, fields=[each for each in found.values() if each is not None])


def _path(text: str) -> tuple[str, ...]:
    """Return the names in a path: between dots, or between backticks where they have dots. Raises ConfigException."""
    steps: list[str] = []
    place = 0
    while place < len(text):
        if text[place] != "`":
            name, _, _ = text[place:].partition(".")
            steps.append(name)
            place += len(name) + 1
            continue
        quoted = _QUOTED.match(text, place)
        if quoted is None:
            raise ConfigException(
                f"Incomplete backtick pair in path: [{text}], consider adding a backslash before backtick at position "
                f"{place} to escape it",
                name="field",
                value=text,
            )
        steps.append(re.sub(r"\\`(?=\.)", "`", quoted[1]))
        place = quoted.end()
    return (*steps, "") if text.endswith(".") or not text else tuple(steps)


_QUOTED: Final = re.compile(r"`(.*?)(?<!\\)`(?:\.|\Z)", re.DOTALL)
"""A name between backticks; one within is followed by another character than a dot, or comes after a backslash."""


@of_both_sides
@dataclass(frozen=True)
class ExtractField(Sided):
    """Puts a field in place of the whole. None stays None.

    Raises, when applied, DataException if the schema has no such field.
    """

    field: str
    field_syntax_version: str = "V1"
    replace_null_with_default: bool = True
    path: tuple[str, ...] = attribute(init=False, repr=False, compare=False)
    """The names of the fields that lead to it."""
    purpose = "field extraction"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("field", rule=non_null, doc="name of the field"),
        Property(
            "field.syntax.version",
            default="V1",
            rule=one_of("V1", "V2", ignore_case=True),
            doc="V2 if names of nested fields are a path, with dots between",
        ),
        NULLS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_path = self.field_syntax_version.upper() == "V2"
        object.__setattr__(self, "path", _path(self.field) if is_path else (self.field,))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the field alone."""
        schema, value = self.source_of(record)
        *outer, last = self.path
        require = self.require_struct if schema is not None else self.require_map
        value = None if value is None else require(value)
        made = None if schema is None else self.schema_from(schema)
        for name in outer:
            value = _entry(value, name)
            if value is not None:
                value = (require_struct if made is not None else require_map)(value, "nested field access")
        if made is not None and value is not None and not self.replace_null_with_default and value.schema.field(last):
            return self.with_side(record, made, value.get_without_default(last))
        return self.with_side(record, made, _entry(value, last))

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema of the field."""
        for name in self.path:
            found = schema.field(name)
            if found is None:
                raise DataException(f"Unknown field: {self.field}")
            schema = found.schema
        return schema


def _entry(value: Mapping[Any, Any] | Struct | None, name: str) -> Any:
    """Return what a map or a struct has of a name, None if it has nothing."""
    if isinstance(value, Struct):
        return None if value.schema.field(name) is None else value.get(name)
    return None if value is None else value.get(name)


@of_both_sides
@dataclass(frozen=True)
class HoistField(Sided):
    """Puts the whole, None too, into the one field of a struct, or of a map if it has no schema."""

    field: str
    purpose = "field hoisting"
    config: ClassVar[ConfigDef] = ConfigDef(Property("field", rule=non_null, doc="name of the field"))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the field around."""
        schema, value = self.source_of(record)
        if schema is None:
            return self.with_side(record, None, {self.field: value})
        made = self.schema_from(schema)
        return self.with_side(record, made, Struct(made, {self.field: value}))

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema of a struct with the field."""
        return Schema.struct({self.field: schema})
