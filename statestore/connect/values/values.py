"""Values: conversions between types, and between values and text; the interface of both modes.

Source: Kafka Connect's `Values`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from statestore.connect.scalars import Float32, Float64, Instant, Int8, Int16, Int32, Int64
from statestore.connect.schema import Schema, SchemaAndValue, Struct
from statestore.connect.values.date_text import format_for

Width = TypeVar("Width", Int8, Int16, Int32, Int64)


class Values(ABC):
    """Kafka Connect's `Values`: `STRICT.parse_string("1.50")`, `COMPAT.convert_to_integer(schema, value)`.

    A schema may be None where it is not known. All raise DataException for what can't be converted.
    """

    @abstractmethod
    def convert_to_boolean(self, schema: Schema | None, value: Any) -> bool | None:
        """Return a value as a boolean."""

    def convert_to_byte(self, schema: Schema | None, value: Any) -> Int8 | None:
        """Return a value as an integer of 8 bits, None for None: COMPAT its lowest 8 bits, STRICT one that fits."""
        return self._integer(Int8, schema, value)

    def convert_to_short(self, schema: Schema | None, value: Any) -> Int16 | None:
        """Return a value as an integer of 16 bits, None for None: COMPAT its lowest 16 bits, STRICT one that fits."""
        return self._integer(Int16, schema, value)

    def convert_to_integer(self, schema: Schema | None, value: Any) -> Int32 | None:
        """Return a value as an integer of 32 bits, None for None: COMPAT its lowest 32 bits, STRICT one that fits."""
        return self._integer(Int32, schema, value)

    def convert_to_long(self, schema: Schema | None, value: Any) -> Int64 | None:
        """Return a value as an integer of 64 bits, None for None: COMPAT its lowest 64 bits, STRICT one that fits."""
        return self._integer(Int64, schema, value)

    @abstractmethod
    def convert_to_float(self, schema: Schema | None, value: Any) -> Float32 | None:
        """Return a value as a float of single precision."""

    @abstractmethod
    def convert_to_double(self, schema: Schema | None, value: Any) -> Float64 | None:
        """Return a value as a float of double precision."""

    @abstractmethod
    def convert_to_decimal(self, schema: Schema | None, value: Any, scale: int) -> Decimal | None:
        """Return a value as a decimal; bytes are the digits of one with `scale` digits behind the point."""

    @abstractmethod
    def convert_to_date(self, schema: Schema | None, value: Any) -> Instant | None:
        """Return a value as a date; an integer is days since 1970-01-01."""

    @abstractmethod
    def convert_to_time(self, schema: Schema | None, value: Any) -> Instant | None:
        """Return a value as a time; an integer is milliseconds since midnight."""

    @abstractmethod
    def convert_to_timestamp(self, schema: Schema | None, value: Any) -> Instant | None:
        """Return a value as a timestamp; an integer is milliseconds since 1970-01-01 UTC."""

    @abstractmethod
    def convert_to_list(self, schema: Schema | None, value: Any) -> Sequence[Any] | None:
        """Return a value that is an array, or the text of one."""

    @abstractmethod
    def convert_to_map(self, schema: Schema | None, value: Any) -> Mapping[Any, Any] | None:
        """Return a value that is a map, or the text of one."""

    @abstractmethod
    def convert_to_struct(self, schema: Schema | None, value: Any) -> Struct | None:
        """Return a value that is a struct."""

    @abstractmethod
    def convert_to_string(self, schema: Schema | None, value: Any) -> str | None:
        """Return the text of a value, None for None."""

    @abstractmethod
    def parse_string(self, text: str | None) -> SchemaAndValue | None:
        """Return what a text stands for, with its schema. None, for the text "null", is Java's null."""

    @abstractmethod
    def infer_schema(self, value: Any) -> Schema | None:
        """Return a schema that a value follows, None if there is none."""

    @abstractmethod
    def _integer(self, width: type[Width], schema: Schema | None, value: Any) -> Width | None:
        """Return a value as an integer of a width."""

    def date_format_for(self, value: Instant) -> str:
        """Return the pattern that Kafka prints an instant with, as `SimpleDateFormat` has it."""
        return format_for(value).pattern
