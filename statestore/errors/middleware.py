"""Errors of middleware: chains that can't work, and records that an interceptor refuses."""

from __future__ import annotations

from statestore.errors.data import RecordError
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

    problem: str = field(kw_only=False)
    message: str = text("{problem}")


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
