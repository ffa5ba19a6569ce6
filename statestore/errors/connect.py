"""Errors of typed values, with the names that Kafka Connect gives them: its users know what they mean."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text


class ConnectException(StateStoreError):
    """The root of what typed headers, converters and transforms raise.

    `header` is the key of the header, if it is of one; `part` is "key" or "value" if it is of a record's.
    """

    problem: str = field(kw_only=False)
    header: str | None = None
    part: str | None = None
    message: str = text("{_where}{problem}")

    @property
    def _where(self) -> str:
        if self.part is not None:
            return f"{self.part}: "
        if self.header is None:
            return ""
        return f"header {self.header!r}: " if self.header else "a header with an empty key: "


class DataException(ConnectException):
    """A value can't be what it is to be: it does not follow its schema, or can't be converted.

    `is_unreadable` says that the bytes of a record are to blame: a converter can't read its key, value or a header.
    """

    is_unreadable: bool = False


class SchemaBuilderException(DataException):
    """A schema is wrong in itself."""


class NullValueException(DataException):
    """There is None where there has to be a value. Kafka throws a NullPointerException here."""


class NumberFormatException(DataException):
    """A text that is to be a number is not one. Kafka throws Java's NumberFormatException here."""


class ConfigException(ConnectException):
    """The property `name` of a converter, a transform or a chain is missing or wrong; None is a property of no name."""

    name: str | None = None
    value: object = None


class SerializationException(ConfigException):
    """The encoding of a converter is unknown. Kafka throws its SerializationException here."""
