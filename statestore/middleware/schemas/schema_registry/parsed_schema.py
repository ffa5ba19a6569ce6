"""Schemas, parsed: what values are written and read with.

A kind of schema is a `SchemaKind`, which is a value: `kinds` has all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from statestore.errors import DataException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError, SchemaIdError
from statestore.middleware.schemas.schema_registry.ids import PlacedId, RegisteredSchema


@dataclass(frozen=True, eq=False)
class ParsedSchema:
    """A schema that values can be written and read with; of Protobuf that of one type of messages, once that is known.

    Picklable, as what it is made of.
    """

    registered: RegisteredSchema
    kind: SchemaKind = field(repr=False)
    name: str | None
    """The full name of its type, None if it has none."""
    inner: Any = field(repr=False)
    """What the kind has made of the text."""
    behind_id: bytes = b""
    """What stands behind the id of the schema, wherever that is written."""
    made_of: tuple[Callable[..., ParsedSchema], Any] | None = field(default=None, repr=False)
    """The function that made it, and its argument, unless it was parsed."""

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value. Raises SerializationError if it does not follow the schema."""
        try:
            return self.kind.write(self, value)
        except DataException as cause:
            raise SerializationError(f"{cause}") from cause

    def read(self, reader: ParsedSchema | None, datum: bytes) -> Any:
        """Return the value of bytes, as another schema has it or as it is. Raises IncompatibleSchemaError."""
        if reader is not None and reader.registered.kind != self.registered.kind:
            raise IncompatibleSchemaError(
                f"a value of {self.registered.kind} can't be read as one of {reader.registered.kind}"
            )
        if reader is not None and self.registered.migrations and reader.registered.text != self.registered.text:
            rules = ", ".join(self.registered.migrations)
            raise IncompatibleSchemaError(f"values of its schema migrate by rules, which are not run: {rules}")
        try:
            return self.kind.read(self, reader, datum)
        except DataException as cause:
            raise IncompatibleSchemaError(f"{cause}") from cause

    def of_record(self, placed: PlacedId) -> tuple[ParsedSchema, bytes]:
        """Return the schema of the record that an id was read from, and the bytes of its value.

        Raises SchemaIdError and IncompatibleSchemaError.
        """
        try:
            return self.kind.of_record(self, placed)
        except DataException as cause:
            raise IncompatibleSchemaError(f"{cause}") from cause

    def __reduce__(self) -> tuple[Any, ...]:
        make, argument = self.made_of or (self.kind.parse, self.registered)
        return make, (argument,)


def _alone(schema: ParsedSchema, placed: PlacedId) -> tuple[ParsedSchema, bytes]:
    if placed.behind:
        raise SchemaIdError(f"malformed schema id: there are {len(placed.behind)} bytes behind it in the header")
    return schema, placed.datum


def _itself(schema: ParsedSchema, name: str | None) -> ParsedSchema:
    return schema


class SchemaKind(NamedTuple):
    """What a kind of schema does. All of it raises DataException, and `write` SerializationError, too."""

    parse: Callable[[RegisteredSchema], ParsedSchema]
    write: Callable[[ParsedSchema, Any], bytes]
    read: Callable[[ParsedSchema, ParsedSchema | None, bytes], Any]
    """Returns the value of bytes, as the second schema has it, None for as the first."""
    names: Callable[[str], set[str]]
    """Returns the ends of the names of the schemas that a text names, each with what stands before it in a name."""
    of_record: Callable[[ParsedSchema, PlacedId], tuple[ParsedSchema, bytes]] = _alone
    of_type: Callable[[ParsedSchema, str | None], ParsedSchema] = _itself
    """Returns the schema of one of its types."""
