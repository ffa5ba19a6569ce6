"""Which types of columns an aggregate takes, in Arrow's types and in words: of rows, whose values are in JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

EXACT_DIGITS: Final = 15
"""How many digits a decimal can have to be exact in JSON, where numbers with a fraction are doubles."""


@dataclass(frozen=True)
class ColumnKind:
    """Types that are taken alike."""

    words: str
    has: Callable[[pa.DataType], bool]


def is_whole(type_: pa.DataType) -> bool:
    """Return whether numbers of a type are whole."""
    return bool(pa.types.is_integer(type_))


def is_floating(type_: pa.DataType) -> bool:
    """Return whether a type is of floating-point numbers, NaN among them."""
    return bool(pa.types.is_floating(type_))


def is_decimal(type_: pa.DataType) -> bool:
    """Return whether a type is of decimals that are exact in JSON."""
    return bool(pa.types.is_decimal(type_)) and type_.precision <= EXACT_DIGITS


def _is_number(type_: pa.DataType) -> bool:
    return is_whole(type_) or is_floating(type_) or is_decimal(type_)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _has_order(type_: pa.DataType) -> bool:
    # The texts that JSON has of times are in the order of times.
    is_time = pa.types.is_date(type_) or pa.types.is_timestamp(type_)
    return _is_number(type_) or _is_text(type_) or is_time or bool(pa.types.is_boolean(type_))


def _comes_back(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return _is_text(type_.key_type) and _comes_back(type_.item_type)
    if pa.types.is_list(type_):
        return _comes_back(type_.value_type)
    if pa.types.is_struct(type_):
        return all(_comes_back(column.type) for column in type_)
    return _has_order(type_) or bool(pa.types.is_binary(type_))


_DECIMALS: Final = f"decimals of up to {EXACT_DIGITS} digits"
NUMBERS: Final = ColumnKind(f"numbers, {_DECIMALS} among them", _is_number)
IN_ORDER: Final = ColumnKind(f"numbers, {_DECIMALS} among them, text, booleans, dates and timestamps", _has_order)
FROM_JSON: Final = ColumnKind(f"what JSON gives back, of decimals those of up to {EXACT_DIGITS} digits", _comes_back)
ANY: Final = ColumnKind("anything", lambda type_: True)
