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
    """A varint still continues in its fifth byte."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "varint is longer than 5 bytes")


class NegativeLengthError(FormatError):
    """A length is negative where the layout gives that no meaning."""

    def __init__(self, what: str, *, length: int) -> None:
        super().__init__(what, f"negative length {length}")
        self.length = length


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
