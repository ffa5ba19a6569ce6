"""Numbers as Java writes and reads them: the text of a float, and `BigDecimal` of a text.

Source: `Float.toString`, `Double.toString` (of JDK 19 and later: the fewest digits), `BigDecimal(String)`,
`BigDecimal.floatValue` and `longValue`.
"""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_DOWN, Context, Decimal
from typing import Final

from statestore.connect.logical_types import scale_of
from statestore.connect.scalars import Float32, Int32, Int64, in_range
from statestore.errors import DataException
from statestore.errors.data import NumberFormatException
from statestore.errors.readable import shape_of

EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_DOWN)
"""Rounds nothing that Java's scales, of 32 bits, can hold."""
_NUMBER: Final = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_TWO_TO_64: Final = Decimal(1 << 64)
_TWO_TO_128: Final = 2.0**128
_LEAST_NORMAL_FLOAT32: Final = 2.0**-126
_LEAST_FLOAT32: Final = 2.0**-149
NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Java's words for the floats that have no digits."""
_PLAIN_EXPONENTS: Final = range(-3, 7)


def decimal_of(text: str) -> Decimal:
    """Return the number of a text, exactly: digits of any script, one point, an exponent.

    Raises NumberFormatException if it is not one, or has an exponent or a scale that 32 bits do not hold.
    """
    found = _NUMBER.fullmatch(text)
    if found is None or not (text.isascii() or max(text) <= "\uffff"):
        raise _no_number(text)
    sign, whole, fraction, exponent = found.groups(default="")
    power = Decimal(exponent) if exponent else 0  # an int would refuse more than 4,300 digits, even if they are zeros
    if not (whole or fraction) or not in_range(power, Int32.bits):
        raise _no_number(text)
    if power and not in_range(len(fraction) - power, Int32.bits):
        raise _no_number(text)
    value = Decimal(f"{sign}{whole}.{fraction}E{int(power)}")
    return value if value else value.copy_abs()  # Java's decimals have no negative zero


def is_digit(character: str) -> bool:
    """Return whether a character is a digit, of any script; those beyond 16 bits are no digits to Java."""
    return character.isdecimal() and character <= "\uffff"


def _no_number(text: str) -> NumberFormatException:
    return NumberFormatException(f"{shape_of(text)} is not a number")


def float32_of(value: Decimal) -> Float32:
    """Return the nearest number of single precision to a decimal: rounded once, not by way of double precision."""
    double = float(value)
    nearest = Float32(double)
    if math.isinf(double) or nearest == double:
        return nearest
    other = _next_float32(nearest, towards=double)
    if _as_finite(nearest) - double != double - _as_finite(other):
        return nearest
    # Double precision took it for the middle between two, which it may not be.
    exact = Decimal(double)
    if value == exact:
        return nearest
    return max(nearest, other) if value > exact else min(nearest, other)


def _next_float32(value: Float32, *, towards: float) -> Float32:
    if math.isinf(value):
        return Float32(math.copysign(3.4028234663852886e38, value))
    if not value:
        return Float32(math.copysign(_LEAST_FLOAT32, towards))
    _, exponent = math.frexp(value)
    # Below a power of two, numbers lie half as far apart.
    away = abs(towards) > abs(value)
    mantissa_is_one = abs(value) == math.ldexp(0.5, exponent)
    step = max(math.ldexp(1.0, exponent - 24 - (mantissa_is_one and not away)), _LEAST_FLOAT32)
    return Float32(value + math.copysign(step, towards - value))


def _as_finite(value: Float32) -> float:
    return math.copysign(_TWO_TO_128, value) if math.isinf(value) else float(value)


def long_of(value: float | Decimal | int) -> int:
    """Return a number as Java's `longValue` does: cut off; floats at the ends of 64 bits, others to their lowest 64."""
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        ends = Int64.wrapped(1 << 63), Int64.wrapped((1 << 63) - 1)
        return min(max(int(value), ends[0]), ends[1]) if math.isfinite(value) else ends[value > 0]
    if isinstance(value, Decimal):
        return _long_of_decimal(value)
    return Int64.wrapped(int(value))


def _long_of_decimal(value: Decimal) -> int:
    # No integer is made of digits: that takes the square of their count, and 1E+999999999 has many.
    if not value or value.adjusted() < 0 or scale_of(value) <= -Int64.bits:
        return 0
    whole = value.to_integral_value(ROUND_DOWN)
    return int(Int64.wrapped(int(EXACT.remainder(whole, _TWO_TO_64))))


def float_text(value: float) -> str:
    """Return the text of a float as Java writes it, of single precision if it is a Float32: `1.0E10`, `NaN`."""
    number = float(value)
    if math.isnan(number):
        return "NaN"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if math.isinf(number):
        return f"{sign}Infinity"
    if number == 0:
        return f"{sign}0.0"
    digits, exponent = _shortest(value) if isinstance(value, Float32) else _shortest_of_double(abs(number))
    if exponent not in _PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _shortest_of_double(value: float) -> tuple[str, int]:
    """Return the fewest digits that stand for a number and no other, and the exponent of the first."""
    digits, exponent = _digits(Decimal(repr(value)))
    # Java takes the nearest of two digits where one would do.
    return (digits, exponent) if len(digits) > 1 else _digits(Decimal(f"{value:.1e}"))


def _shortest(value: Float32) -> tuple[str, int]:
    exact = Decimal(abs(float(value)))
    # No two decimals of six digits are the same float, so one of fewer is that of six, unless floats lie further apart.
    for count in range(6 if exact >= _LEAST_NORMAL_FLOAT32 else 2, 10):
        near = Decimal(f"{abs(float(value)):.{count - 1}e}")
        if float32_of(near) == abs(value):
            return _digits(near)
        further = near + Decimal((0, (1,), int(near.as_tuple().exponent)))
        if near < exact and float32_of(further) == abs(value):  # a power of two has more room above than below
            return _digits(further)
    raise AssertionError("nine digits tell all numbers of single precision apart")


def _digits(value: Decimal) -> tuple[str, int]:
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    return digits, value.adjusted()


def decimal_text(value: Decimal) -> str:
    """Return the text of a decimal as Java writes it, with its scale. Raises DataException if it is not finite."""
    if not value.is_finite():
        raise DataException(f"{shape_of(value)} is not a finite decimal")
    return str(value.copy_abs() if value.is_zero() else value)
