"""Errors of compressed values."""

from __future__ import annotations

from statestore.errors.middleware import RecordRefusedError
from statestore.errors.root import field, text


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
