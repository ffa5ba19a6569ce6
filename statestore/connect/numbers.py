"""Numbers that know how wide they are, as Java's do: what Kafka Connect does with a value depends on it.

A plain `int` stands for INT64 and a plain `float` for FLOAT64 where no schema says otherwise; where one does, it may be
of any width that holds it. Arithmetic gives plain numbers again.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final, TypeVar

from statestore.errors import DataException
from statestore.errors.readable import shape_of

_Integer = TypeVar("_Integer", bound="_SizedInt")
_FLOAT32: Final = struct.Struct(">f")


class _SizedInt(int):
    """A signed integer of a fixed width."""

    bits: ClassVar[int]

    def __new__(cls: type[_Integer], value: int) -> _Integer:
        if not in_range(value, cls.bits):
            raise DataException(f"{shape_of(value)} is out of the range of {cls.__name__.upper()}")
        return super().__new__(cls, value)

    @classmethod
    def wrapped(cls: type[_Integer], value: int) -> _Integer:
        """Return the number that the lowest bits of a larger one make, as Java's casts do: 300 is 44 in eight bits."""
        half = 1 << (cls.bits - 1)
        return cls((value + half) % (half << 1) - half)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class Int8(_SizedInt):
    """A Java byte: -128 to 127."""

    bits = 8


class Int16(_SizedInt):
    """A Java short: -32,768 to 32,767."""

    bits = 16


class Int32(_SizedInt):
    """A Java int: 32 bits with a sign."""

    bits = 32


class Int64(_SizedInt):
    """A Java long: 64 bits with a sign."""

    bits = 64


class _SizedFloat(float):
    """A floating-point number of a fixed width."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self)!r})"

    __str__ = float.__repr__


class Float64(_SizedFloat):
    """A Java double."""


class Float32(_SizedFloat):
    """A Java float: the nearest number of single precision, infinity for what is larger than all of them."""

    def __new__(cls, value: float) -> Float32:
        """Round the value."""
        try:
            (rounded,) = _FLOAT32.unpack(_FLOAT32.pack(value))
        except OverflowError:
            rounded = float("inf") if value > 0 else float("-inf")
        return super().__new__(cls, rounded)


def in_range(value: int, bits: int) -> bool:
    """Return whether a signed integer of so many bits can hold a number."""
    half = 1 << (bits - 1)
    return -half <= value < half
