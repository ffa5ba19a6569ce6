"""Values of JSON to typed values. Source: `convertToConnect` of Kafka's `JsonConverter`."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from decimal import MAX_PREC, Context, Decimal
from math import isfinite
from typing import Any, Final

from statestore.connect.converters.json_text import MISSING
from statestore.connect.instant import Instant
from statestore.connect.logical_types import days_to_date, decimal_from_bytes, milliseconds_to_time, scale_of
from statestore.connect.numbers import Float32, Float64, Int8, Int16, Int32, Int64, in_range
from statestore.connect.recursion import Steps, all_of, is_steps
from statestore.connect.schema import LogicalName, Schema, Struct, Type
from statestore.connect.typed_map import TypedMap
from statestore.connect.values.number_text import float32_of, float_text, long_of
from statestore.errors import DataException
from statestore.errors.readable import shape_of

_INTEGERS: Final[dict[Type, type[Int8] | type[Int16] | type[Int32] | type[Int64]]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: Int64,
}
_NO_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_MOST_INTEGER_DIGITS: Final = 20
_EXACT: Final = Context(prec=MAX_PREC)
_BLANKS: Final = re.compile("[\x00-\x20]+")
_GROUPS: Final = re.compile("[^=]*={0,2}")


class PayloadReader:
    """Makes values of JSON. `replace_null` says whether the default stands for null, and for a field that is missing.

    `strict` refuses what is not of the type, or loses something as one.
    """

    def __init__(self, *, strict: bool, replace_null: bool) -> None:
        self._strict = strict
        self._replace_null = replace_null
        self._wrong_nulls = 0  # where Kafka reads null because the type is wrong, and the schema does not allow it

    def read(self, schema: Schema | None, node: Any) -> Any:
        """Return the value of a JSON value, or the steps to it. Raises DataException if it can't be one."""
        if schema is None:
            return self._without_schema(node)
        if node is None:
            if schema.default is not None and self._replace_null:
                return schema.default
            if schema.optional:
                return None
            raise DataException(f"Invalid null value for required {schema.type} field")
        if node is MISSING and self._strict:
            raise DataException("There is no JSON")
        if schema.name in self._logical:
            return self._logical[schema.name](self, schema, node)
        return self._typed[schema.type](self, schema, node)

    def _without_schema(self, node: Any) -> Any:
        if node is None or node is MISSING:
            return None
        if isinstance(node, bool | str):
            return node
        if isinstance(node, list):
            return self._array(None, node)
        if isinstance(node, dict):
            return self._map(None, node)
        kind = Type.INT64 if isinstance(node, int) else Type.FLOAT64
        return self._typed[kind](self, _NUMBERS_WITHOUT_SCHEMA[kind], node)

    def _integer(self, schema: Schema, node: Any) -> int:
        form = _INTEGERS[schema.type]
        if not self._strict:
            return form.wrapped(long_of(node) if _is_number(node) else 0)
        if _is_number(node):
            whole = node if isinstance(node, int) else _whole(node)
            if whole is not None and in_range(whole, form.bits):
                return form(whole)
        raise self._wrong(schema, node)

    def _float(self, schema: Schema, node: Any) -> float:
        single = schema.type is Type.FLOAT32
        if not _is_number(node):
            if not self._strict:
                return Float32(0.0) if single else Float64(0.0)
            if isinstance(node, str) and node in _NO_NUMBERS:
                return Float32(_NO_NUMBERS[node]) if single else Float64(_NO_NUMBERS[node])
            raise self._wrong(schema, node)
        exact = Decimal(node) if isinstance(node, int) else node
        found = float32_of(exact) if single else Float64(float(exact))
        if not self._strict:
            return found
        # What is read is what was meant if it is written so, or rounded to as many digits.
        texts = (float_text(found), f"{float(found):.{len(exact.as_tuple().digits) - 1}e}")
        if not isfinite(found) or exact not in map(Decimal, texts):
            raise DataException(f"{shape_of(node)} loses digits as {schema.type}")
        return found

    def _boolean(self, schema: Schema, node: Any) -> bool:
        if self._strict and not isinstance(node, bool):
            raise self._wrong(schema, node)
        return node is True

    def _string(self, schema: Schema, node: Any) -> str | None:
        if not isinstance(node, str):
            self._count_wrong_null(schema, node)
            return None
        return node

    def _bytes(self, schema: Schema, node: Any) -> bytes | None:
        if not isinstance(node, str):
            self._count_wrong_null(schema, node)
            return None
        return self._base64(node, "Invalid bytes field")

    def _count_wrong_null(self, schema: Schema, node: Any) -> None:
        if self._strict:
            raise self._wrong(schema, node)
        self._wrong_nulls += not schema.optional

    def _base64(self, text: str, problem: str) -> bytes:
        try:
            found = b"".join(_decoded(part) for part in _BLANKS.split(text))
        except (NotBase64, ValueError) as cause:
            raise DataException(problem) from cause
        if self._strict and b64encode(found).decode() != text:
            raise DataException(problem)
        return found

    def _array(self, schema: Schema | None, node: Any) -> Steps:
        if self._strict and schema is not None and not isinstance(node, list):
            raise self._wrong(schema, node)
        element_schema = None if schema is None else schema.value_schema
        elements = node if isinstance(node, list) else node.values() if isinstance(node, dict) else ()
        return (yield from all_of(self.read(element_schema, element) for element in elements))

    def _map(self, schema: Schema | None, node: Any) -> Steps:
        key_schema, value_schema = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        if key_schema is None or key_schema.type is Type.STRING:
            if not isinstance(node, dict):
                raise DataException(
                    f"Maps with string fields should be encoded as JSON objects, but found {_kind(node)}"
                )
            found = yield from all_of(self.read(value_schema, element) for element in node.values())
            return dict(zip(node, found, strict=True))
        if not isinstance(node, list):
            raise DataException(
                f"Maps with non-string fields should be encoded as JSON array of tuples, but found {_kind(node)}"
            )
        pairs = []
        for entry in node:
            if not isinstance(entry, list):
                raise DataException(f"Found invalid map entry instead of array tuple: {_kind(entry)}")
            if len(entry) != 2:
                raise DataException(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            key, found = self.read(key_schema, entry[0]), self.read(value_schema, entry[1])
            pairs.append(((yield key) if is_steps(key) else key, (yield found) if is_steps(found) else found))
        made = TypedMap(pairs)
        if self._strict and len(made) < len(pairs):
            raise DataException("A map has a key a second time")
        return made

    def _struct(self, schema: Schema, node: Any) -> Steps:
        if not isinstance(node, dict):
            raise DataException(f"Structs should be encoded as JSON objects, but found {_kind(node)}")
        if self._strict:
            for name in node:
                if schema.field(name) is None:
                    raise DataException(f"a name of {len(name)} characters is not a valid field name")
        before = self._wrong_nulls
        values = yield from all_of(self.read(each.schema, node.get(each.name)) for each in schema.fields)
        made = Struct.of_checked(schema, {each.name: value for each, value in zip(schema.fields, values, strict=True)})
        if self._wrong_nulls > before:
            made.validate()
        return made

    _typed: Final[dict[Type, Callable[..., Any]]] = {
        **dict.fromkeys(_INTEGERS, _integer),
        Type.FLOAT32: _float,
        Type.FLOAT64: _float,
        Type.BOOLEAN: _boolean,
        Type.STRING: _string,
        Type.BYTES: _bytes,
        Type.ARRAY: _array,
        Type.MAP: _map,
        Type.STRUCT: _struct,
    }

    def _decimal(self, schema: Schema, node: Any) -> Decimal:
        if _is_number(node):
            value = Decimal(node) if node else Decimal(node).copy_abs()  # there is no zero below zero
            return self._with_scale(schema, value) if self._strict else value
        if isinstance(node, str):
            problem = "Invalid bytes for Decimal field"
            try:
                return decimal_from_bytes(schema, self._base64(node, problem))
            except DataException as cause:
                raise DataException(f"{problem}: {cause.problem}") from cause
        raise DataException(
            f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {_kind(node)}"
        )

    def _with_scale(self, schema: Schema, value: Decimal) -> Decimal:
        """Return the number with the digits that its schema has, if it can have them."""
        scale = scale_of(decimal_from_bytes(schema, b"\0"))
        if abs(scale - scale_of(value)) <= _MOST_ADDED_ZEROS or not value:
            found = value.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
            if found == value:
                return found
        raise DataException(f"{shape_of(value)} is no decimal of scale {scale}")

    def _date(self, schema: Schema, node: Any) -> Instant:
        return days_to_date(_integer_in(node, 32, "Date", "integer"))

    def _time(self, schema: Schema, node: Any) -> Instant:
        return milliseconds_to_time(_integer_in(node, 32, "Time", "integer"))

    def _timestamp(self, schema: Schema, node: Any) -> Instant:
        if self._strict:
            return Instant(_integer_in(node, 64, "Timestamp", "integral"))
        return Instant(int(Int64.wrapped(_integer_in(node, None, "Timestamp", "integral"))))

    _logical: Final[dict[str | None, Callable[..., Any]]] = {
        LogicalName.DECIMAL: _decimal,
        LogicalName.DATE: _date,
        LogicalName.TIME: _time,
        LogicalName.TIMESTAMP: _timestamp,
    }

    @staticmethod
    def _wrong(schema: Schema, node: Any) -> DataException:
        return DataException(f"{shape_of(node)} is not a value of {schema}")


_MOST_ADDED_ZEROS: Final = 10_000
_NUMBERS_WITHOUT_SCHEMA: Final = {kind: Schema(kind) for kind in (Type.INT64, Type.FLOAT64)}


def _is_number(node: Any) -> bool:
    return isinstance(node, int | Decimal) and not isinstance(node, bool)


def _whole(value: Decimal) -> int | None:
    """Return a number that has no fraction as an integer, None if it has one or is far too large."""
    if value.adjusted() >= _MOST_INTEGER_DIGITS or value != value.to_integral_value():
        return None
    return int(value)


def _integer_in(node: Any, bits: int | None, kind: str, form: str) -> int:
    if not isinstance(node, int) or isinstance(node, bool) or (bits is not None and not in_range(node, bits)):
        raise DataException(
            f"Invalid type for {kind}, underlying representation should be {form} but was {_kind(node)}"
        )
    return node


def _decoded(part: str) -> bytes:
    """Return the bytes of groups of four characters; any of them may end in padding."""
    groups = _GROUPS.findall(part)
    if any(len(group) % 4 for group in groups):
        raise ValueError("Base64 comes in groups of four characters")
    return b"".join(b64decode(group, validate=True) for group in groups)


def _kind(node: Any) -> str:
    """Return what Jackson calls a kind of JSON value."""
    if node is None or node is MISSING:
        return "MISSING" if node is MISSING else "NULL"
    kinds = {bool: "BOOLEAN", str: "STRING", list: "ARRAY", dict: "OBJECT"}
    return kinds.get(type(node), "NUMBER")
