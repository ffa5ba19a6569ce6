"""Errors of bytes, serdes and headers."""

from __future__ import annotations

from statestore.errors.root import StateStoreError


class FormatError(StateStoreError):
    """Bytes do not follow the layout named by `what`."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class TruncatedError(FormatError):
    """The layout `what` asks for `wanted` bytes where only `got` are left."""

    def __init__(self, what: str, *, wanted: int, got: int) -> None:
        super().__init__(what, f"needs {wanted} bytes, only {got} are left")
        self.wanted = wanted
        self.got = got


class VarintError(FormatError):
    """A varint still continues in its last byte: the fifth, or the tenth where it holds 64 bits."""

    def __init__(self, what: str, *, max_bytes: int = 5) -> None:
        super().__init__(what, f"varint is longer than {max_bytes} bytes")
        self.max_bytes = max_bytes


class NegativeLengthError(FormatError):
    """A length is negative where the layout gives that no meaning."""

    def __init__(self, what: str, *, length: int) -> None:
        super().__init__(what, f"negative length {length}")
        self.length = length


class ChecksumError(FormatError):
    """The checksum in the bytes is not the one of the bytes: they were changed after they were written."""

    def __init__(self, what: str, *, recorded: int, computed: int) -> None:
        super().__init__(what, f"holds the checksum {recorded:08x}, but its bytes have {computed:08x}")
        self.recorded = recorded
        self.computed = computed


class SerdeError(StateStoreError):
    """A serde could not do its work."""


class SerializationError(SerdeError):
    """An object could not be turned into bytes; the cause is chained."""


class DeserializationError(SerdeError):
    """Bytes could not be turned into an object; the cause is chained."""


class HeadersFrozenError(StateStoreError):
    """Headers that are read-only were to be changed; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("these headers are read-only; change a copy() of them")


class RecordSentError(StateStoreError):
    """A record was to be sent a second time; nothing was sent."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"this record for topic {topic!r} was sent already, and what sends a record may have added headers to it. "
            "Send a copy() of it, with the headers that it should start with"
        )
        self.topic = topic


class LossyHeadersError(StateStoreError):
    """Headers hold what `form` can't hold; nothing was written. `key` is that of the header."""

    def __init__(self, form: str, *, key: str, problem: str) -> None:
        super().__init__(f"header {key!r} {problem}, which {form} can't hold")
        self.form = form
        self.key = key
        self.problem = problem


class UnknownHeaderError(StateStoreError):
    """A header's key has no id, or an id no key."""

    def __init__(self, header: str | int) -> None:
        kind = "key" if isinstance(header, str) else "id"
        super().__init__(f"no header is registered under the {kind} {header!r}. Add it to the registry of both sides")
        self.header = header
