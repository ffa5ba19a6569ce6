"""Errors of interceptors that look at headers alone: at one that holds all others, and at one that ends a record."""

from __future__ import annotations

from statestore.errors.middleware import RecordRefusedError
from statestore.errors.root import field, text


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
    """A record that should be a CloudEvent is none."""

    problem: str = field(kw_only=False)
    message: str = text("the record is no CloudEvent: {problem}")


class HeaderLimitError(RecordRefusedError):
    """A record has more headers, or larger ones, than HeaderLimits allows."""

    what: str
    found: int
    limit: int
    problem: str = text("the record has {found} {what}, and {limit} are allowed")
