"""Errors of bytes, serdes, headers, and typed headers with their converters and transforms."""

from __future__ import annotations

from typing import Any

from statestore.errors.readable import facts_in_words, record_place
from statestore.errors.root import StateStoreError, field, text


class FormatError(StateStoreError):
    """Bytes do not follow the layout named by `what`."""

    what: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{what}: {problem}")


class TruncatedError(FormatError):
    """The layout `what` asks for `wanted` bytes where only `got` are left."""

    wanted: int
    got: int
    problem: str = text("needs {wanted} bytes, only {got} are left")


class VarintError(FormatError):
    """A varint still continues in its last byte: the fifth, or the tenth where it holds 64 bits."""

    max_bytes: int = 5
    problem: str = text("varint is longer than {max_bytes} bytes")


class NegativeLengthError(FormatError):
    """A length is negative where the layout gives that no meaning."""

    length: int
    problem: str = text("negative length {length}")


class RecordError(StateStoreError):
    """A record can't be read, processed or written. The fields say which, as far as known, and not what it holds.

    `key_digest` is the first 16 hex digits of the key's SHA-256, "null" of a null key, "" if unknown. Sizes are bytes,
    None of what is null, `header_bytes` also if only the key is known. `at` is the file and line of the user's
    innermost code that raised, "" if none did.
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    key_digest: str = ""
    key_bytes: int | None = None
    value_bytes: int | None = None
    header_bytes: int | None = None
    at: str = ""

    def name_record(self, **fields: Any) -> None:
        """Say which record it is, unless the error knows already: `fields` are some of those above."""
        if not self.key_digest:
            vars(self).update({name: value for name, value in fields.items() if name in RecordError.__annotations__})
            self.message = f"{self.message} ({', '.join(filter(None, (self._place, self._facts)))})"
            self.args = (self.message,)

    @property
    def _place(self) -> str:
        return record_place(self.topic, self.partition, self.offset) if self.topic else ""

    @property
    def _facts(self) -> str:
        return facts_in_words(vars(self))


class SerdeError(RecordError):
    """A serde could not do its work."""


class SerializationError(SerdeError):
    """An object could not be turned into bytes; the cause is chained."""


class DeserializationError(SerdeError):
    """Bytes could not be turned into an object; the cause is chained."""


class HeadersFrozenError(StateStoreError):
    """An attempt to change headers that are read-only; nothing was changed."""

    message: str = text("these headers are read-only; change a copy() of them")


class RecordSentError(StateStoreError):
    """An attempt to send a record a second time; nothing was sent."""

    topic: str = field(kw_only=False)
    message: str = text(
        "this record for topic {topic!r} was sent already, and what sends a record may have added headers to it. "
        "Send a copy() of it, with the headers that it should start with"
    )


class LossyHeadersError(StateStoreError):
    """The header `key` has something that `form` can't hold; nothing was written."""

    form: str = field(kw_only=False)
    key: str
    problem: str
    message: str = text("header {key!r} {problem}, which {form} can't hold")


class UnknownHeaderError(StateStoreError):
    """A header's key has no id, or an id no key."""

    header: str | int = field(kw_only=False)
    message: str = text("no header is registered under the {_part} {header!r}. Add it to the registry of both sides")

    @property
    def _part(self) -> str:
        return "key" if isinstance(self.header, str) else "id"


class ConnectException(StateStoreError):
    """The root of what typed headers, converters and transforms raise.

    `header` is the key of the header that it is about, None for none; `part` is "key" or "value" of a record, or None.
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
    """A value does not follow its schema, or can't be converted.

    `is_unreadable` says that the bytes of a record are to blame: a converter can't read its key, value or a header.
    """

    is_unreadable: bool = False


class SchemaBuilderException(DataException):
    """A schema is wrong in itself."""


class NullValueException(DataException):
    """A value is None where there must be one. Kafka throws a NullPointerException here."""


class NumberFormatException(DataException):
    """A text is not a number. Kafka throws Java's NumberFormatException here."""


class ConfigException(ConnectException):
    """The property `name` of a converter, a transform or a chain is missing or wrong; None if it has no name."""

    name: str | None = None
    value: object = None


class SerializationException(ConfigException):
    """The encoding of a converter is unknown. Kafka throws its SerializationException here."""
