"""Errors of schema registries, of records whose schemas they hold, and of values whose type headers name."""

from __future__ import annotations

from statestore.errors.data import DeserializationError, SerializationError
from statestore.errors.middleware import RecordRefusedError, ServiceUnavailableError
from statestore.errors.root import field, text


class RegistryUnavailableError(ServiceUnavailableError):
    """A schema registry does not answer, or not as one. Nothing is known of the record's schema: see its base class."""


class SchemaRejectedError(SerializationError):
    """A registry does not take the schema of what is written, for a subject."""

    subject: str = field(kw_only=False)
    problem: str
    message: str = text(
        "the schema registry does not take the schema for subject {subject!r}: {problem}. "
        "Change the schema so that it is compatible, or deposit it before the query starts"
    )


class SchemaNotFoundError(DeserializationError):
    """A registry answers that it has no schema of an id that a record names."""

    schema_id: str = field(kw_only=False)
    message: str = text("the schema registry has no schema with the {schema_id}, which the record names")


class SchemaIdError(DeserializationError):
    """A record names no schema, or by what is no id."""

    problem: str = field(kw_only=False)
    message: str = text("{problem}")


class IncompatibleSchemaError(DeserializationError):
    """What a record holds can't be read: its bytes are not of its schema, or that does not go with the reader's."""

    problem: str = field(kw_only=False)
    message: str = text("{problem}")


class SchemaRefusedError(RecordRefusedError):
    """A record's value names no schema, one that is not there, or one that the topic's does not go with."""


class UnknownContentTypeError(DeserializationError):
    """A record's content type is none that the serde has a format for; None if the record has none."""

    content_type: str | None = field(kw_only=False)
    known: str
    message: str = text("{_found}. The serde knows {known}: give it another format, or a default for records without")

    @property
    def _found(self) -> str:
        return "the record has no content type" if self.content_type is None else f"content type {self.content_type!r}"
