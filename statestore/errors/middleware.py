"""Errors of middleware and its serdes: chains that can't work, refused records, schemas. None holds a key or token."""

from __future__ import annotations

from statestore.errors.data import DeserializationError, RecordError, SerializationError
from statestore.errors.root import StateStoreError, field, text


class MiddlewareError(StateStoreError):
    """Middleware can't work as it was put together."""


class ChainOrderError(MiddlewareError):
    """Two interceptors stand in an order in which they can't work; the names are those of the interceptors."""

    first: str
    second: str
    reason: str
    message: str = text("{second!r} must not come after {first!r} in a chain: {reason}")


class ChainIncompleteError(MiddlewareError):
    """A chain that is to run lacks an interceptor of kind `missing`, without which the one named can't do its work."""

    interceptor: str
    missing: str
    reason: str
    message: str = text("{interceptor!r} needs {missing!r} behind it in the chain: {reason}")


class HeaderRangeError(MiddlewareError):
    """A range of header ids overlaps another one, or an id lies outside of its owner's range."""


class ExtraMissingError(MiddlewareError):
    """An application needs the library `module`, which is not installed; the extra `extra` of statestore brings it."""

    module: str
    extra: str
    message: str = text("{module} is not installed: pip install 'statestore[{extra}]'")


class ServiceUnavailableError(StateStoreError):
    """What a serde or an interceptor asks does not answer. The data may be sound: they are never refused for it.

    Serdes let it through as it is, and the query fails, to be started again.
    """

    service: str = field(kw_only=False)
    """Never holds a secret, nor whom to ask as."""
    problem: str
    message: str = text(
        "{service} can't be asked: {problem}. Nothing was committed, and no record was refused for it: "
        "mend the service or its configuration, and start the query again"
    )


class RecordRefusedError(RecordError):
    """An interceptor refuses a record: the reason is what dead letters say. Never holds a secret.

    `audit_topic` is where the record goes instead of the query's dead letters; None leaves it to the query.
    """

    problem: str = field(kw_only=False)
    audit_topic: str | None = None
    message: str = text("{problem}")


class KeyUnusableError(MiddlewareError):
    """The keyring has no active key, or one that can't do what it is for; nothing was signed or encrypted."""

    purpose: str
    problem: str
    message: str = text("{purpose}: {problem}")


class UnknownKeyIdError(RecordRefusedError):
    """A record names a key that the keyring does not have; `purpose` says what for."""

    purpose: str
    key_id: str
    problem: str = text(
        "{purpose}: the keyring has no key {key_id!r}. If it is one of yours, add it to the keyring, or have the "
        "vault unwrap it, old keys too as long as there are records of them; else the record is forged"
    )


class SignatureRefusedError(RecordRefusedError):
    """A record's signature is missing, malformed, too old, seen before, or not that of this record."""

    reason: str
    problem: str = text("the signature is refused: {reason}")


class CiphertextRefusedError(RecordRefusedError):
    """A value or header that was to be decrypted is not encrypted, malformed, or was changed."""

    what: str
    reason: str
    problem: str = text("{what} can't be decrypted: {reason}")


class TokenRefusedError(RecordRefusedError):
    """A record's token is missing, malformed, too large, expired, or not for us."""

    reason: str
    problem: str = text("the token is refused: {reason}")


class AccessDeniedError(RecordRefusedError):
    """The policy denies a record; `principal` is who its token is of, None for nobody."""

    principal: str | None
    action: str
    topic: str
    reason: str
    problem: str = text("{principal!r} may not {action} to topic {topic!r}: {reason}")


class CompressedValueError(RecordRefusedError):
    """A value that says it is compressed can't be read: its codec, its dictionary or the value itself is at fault."""

    codec: str
    problem: str = field(kw_only=False)
    message: str = text("a value compressed with {codec} {problem}")


class DecompressionLimitError(CompressedValueError):
    """A compressed value would be larger than values may be; it was not made."""

    max_bytes: int
    problem: str = text(
        "would be of more than {max_bytes} bytes, or needs more memory than that: raise max_bytes if it is sound"
    )


class SliceError(RecordRefusedError):
    """A record can't be cut, or a slice can't be put together with the others of its message."""


class SlicesIncompleteError(SliceError):
    """Slices of a message were given up: some never came. The record that is refused is the first of those that did."""

    message_id: str
    """As hex."""
    count: int
    missing: str
    """The indexes of the slices that did not come, from 0 on, as in `1, 3-7`."""
    cause: str
    problem: str = text(
        "slices {missing} of {count} of message {message_id} are missing, and it is given up: {cause}. Send the whole "
        "message again"
    )


class ClaimError(RecordRefusedError):
    """A claim can't be honoured: it is malformed, or what it stands for is not what was checked in."""


class ClaimMissingError(ClaimError):
    """There is nothing under a claim; the object was deleted, or never there."""

    path: str
    location: str
    problem: str = text(
        "there is no object {path} at {location}: it was deleted, or the record is from another location. Keep objects "
        "for longer than the topic keeps records"
    )


class CompactHeadersError(RecordRefusedError):
    """The header that should hold all headers of a record does not, or has ids that the registry does not know."""

    header: str
    cause: str
    problem: str = text(
        "header {header!r} does not hold the headers of its record: {cause}. Give both sides the same registry, and "
        "let nobody else write that header"
    )


class ExpiryHeaderError(RecordRefusedError):
    """The header that says when a record expires does not say it."""

    header: str
    problem: str = field(kw_only=False)
    message: str = text("header {header!r} does not say when its record expires: {problem}")


class RecordExpiredError(RecordRefusedError):
    """A record came after its time: it had expired at `expiry_ms`, and came at `now_ms`, both since the epoch."""

    expiry_ms: int
    now_ms: int
    problem: str = text("the record has expired at {expiry_ms}, and it was {now_ms} when it came (ms since the epoch)")


class CloudEventRefusedError(RecordRefusedError):
    """A record that should be a CloudEvent is not one."""

    problem: str = field(kw_only=False)
    message: str = text("the record is not a CloudEvent: {problem}")


class HeaderLimitError(RecordRefusedError):
    """A record has more headers, or larger ones, than HeaderLimits allows."""

    what: str
    found: int
    limit: int
    problem: str = text("the record has {found} {what}, and {limit} are allowed")


class TrailRefusedError(RecordRefusedError):
    """A record's trail is not one that was written by us, or was changed."""

    header: str
    reason: str
    problem: str = text("the trail in header {header!r} can't be read: {reason}. Who wrote the record has to mend it")


class RegistryUnavailableError(ServiceUnavailableError):
    """A schema registry does not answer, or answers something else. The record may be fine: see the base class."""


class SchemaRejectedError(SerializationError):
    """A registry does not take the schema to be written, for a subject."""

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
    """A record names no schema, or names it by something that is not an id."""


class IncompatibleSchemaError(DeserializationError):
    """A record can't be read: its bytes don't follow its schema, or this is not compatible with the reader's."""


class SchemaRefusedError(RecordRefusedError):
    """A record's value names no schema, an unknown one, or one that is not compatible with the topic's."""


class UnknownContentTypeError(DeserializationError):
    """The serde has no format for a record's content type; None if the record has no content type."""

    content_type: str | None = field(kw_only=False)
    known: str
    message: str = text("{_found}. The serde knows {known}: give it another format, or a default for records without")

    @property
    def _found(self) -> str:
        return "the record has no content type" if self.content_type is None else f"content type {self.content_type!r}"
