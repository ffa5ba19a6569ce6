"""Typed values to values of JSON. Source: `convertToJson` of Kafka's `JsonConverter`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from statestore.connect.instant import Instant
from statestore.connect.logical_types import date_to_days, decimal_to_bytes, scale_of, time_to_milliseconds
from statestore.connect.numbers import Float32, Float64, Int32
from statestore.connect.recursion import Steps, all_of, is_steps
from statestore.connect.schema import LogicalName, Schema, Struct, Type, is_of_type, type_of
from statestore.errors import DataException
from statestore.errors.data import NullValueException
from statestore.errors.readable import shape_of

_SIMPLE: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING})


class PayloadWriter:
    """Makes JSON of values: of None, `replace_null` says whether a default stands for it.

    `strict` refuses what would be read as something else: what follows no schema as the reader has it, numbers that are
    none without a schema, null for a key.
    """

    def __init__(self, *, strict: bool, replace_null: bool, decimals_are_numbers: bool) -> None:
        self._strict = strict
        self._replace_null = replace_null
        self._decimals_are_numbers = decimals_are_numbers
        self._logical: Final[dict[str | None, Callable[[Schema, Any], Any]]] = {
            LogicalName.DECIMAL: self._decimal,
            LogicalName.DATE: self._date,
            LogicalName.TIME: self._time,
            LogicalName.TIMESTAMP: self._timestamp,
        }

    def write(self, schema: Schema | None, value: Any) -> Any:
        """Return the JSON of a value, or the steps to it. Raises DataException if it does not follow the schema."""
        if value is None:
            return self._null(schema)
        if schema is not None and schema.name in self._logical:
            return self._logical[schema.name](schema, value)
        known = type_of(value) if schema is None else schema.type
        if known is None:
            raise DataException(f"{type(value).__name__} does not have corresponding schema type.")
        if not is_of_type(value, known):
            raise DataException(f"Invalid type for {known}: {type(value).__name__}")
        if known in _SIMPLE:
            return value
        return self._complex[known](self, schema, value)

    def _null(self, schema: Schema | None) -> Any:
        if schema is None:
            return None
        if schema.default is not None and self._replace_null:
            return self.write(schema, schema.default)
        if not schema.optional:
            raise DataException("Conversion error: null value for field that is required and has no default value")
        return None

    def _float(self, schema: Schema | None, value: float) -> float:
        if self._strict and schema is None and not isfinite(value):
            raise DataException(f"{shape_of(value)} has no JSON that is read as a number without a schema")
        is_single = isinstance(value, Float32) if schema is None else schema.type is Type.FLOAT32
        return Float32(value) if is_single else Float64(value)

    def _bytes(self, schema: Schema | None, value: bytes | bytearray | memoryview) -> str:
        return b64encode(bytes(value)).decode()

    def _array(self, schema: Schema | None, value: Sequence[Any]) -> Steps:
        if self._strict and schema is not None and schema.value_schema is None:
            raise DataException("Array schema did not specify the element type")
        element_schema = None if schema is None else schema.value_schema
        return (yield from all_of(self.write(element_schema, element) for element in value))

    def _map(self, schema: Schema | None, value: Mapping[Any, Any]) -> Steps:
        key_schema, value_schema = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        if schema is None:
            has_names = all(isinstance(key, str) for key in value)
        elif key_schema is None:
            raise NullValueException("Map schema did not specify the key type")
        else:
            has_names = key_schema.type is Type.STRING
        names: dict[str, Any] = {}
        pairs: list[Any] = []
        for key, element in value.items():
            json_key, json_value = self.write(key_schema, key), self.write(value_schema, element)
            json_key = (yield json_key) if is_steps(json_key) else json_key
            json_value = (yield json_value) if is_steps(json_value) else json_value
            if has_names:
                name = _name(json_key)
                if self._strict and (json_key is None or name in names):
                    raise DataException(f"A key of a map, {shape_of(key)}, would be read as another one")
                names[name] = json_value
            else:
                pairs.append([json_key, json_value])
        if self._strict and schema is None and not has_names:
            raise DataException("A map without a schema must have strings for keys, or it is read as an array")
        return names if has_names else pairs

    def _struct(self, schema: Schema | None, value: Struct) -> Steps:
        if value.schema != schema:
            raise DataException("Mismatching schema.")
        fields = value.schema.fields
        made = yield from all_of(self.write(each.schema, value.get_without_default(each.name)) for each in fields)
        return {each.name: written for each, written in zip(fields, made, strict=True)}

    _complex: Final[dict[Type, Callable[..., Any]]] = {
        Type.FLOAT32: _float,
        Type.FLOAT64: _float,
        Type.BYTES: _bytes,
        Type.ARRAY: _array,
        Type.MAP: _map,
        Type.STRUCT: _struct,
    }

    def _decimal(self, schema: Schema, value: Any) -> Any:
        if not isinstance(value, Decimal):
            raise DataException(f"Invalid type for Decimal, expected Decimal but was {type(value).__name__}")
        if not self._decimals_are_numbers:
            return b64encode(decimal_to_bytes(schema, value)).decode()
        if self._strict:
            decimal_to_bytes(schema, value)
        scale_of(value)
        return value

    def _date(self, schema: Schema, value: Any) -> int:
        days = date_to_days(_instant(value, "Date"))
        return Int32(days) if self._strict else Int32.wrapped(days)

    def _time(self, schema: Schema, value: Any) -> int:
        return time_to_milliseconds(_instant(value, "Time"))

    def _timestamp(self, schema: Schema, value: Any) -> int:
        return _instant(value, "Timestamp").epoch_ms


def _instant(value: Any, kind: str) -> Instant:
    if not isinstance(value, Instant):
        raise DataException(f"Invalid type for {kind}, expected Instant but was {type(value).__name__}")
    return value


def _name(key: Any) -> str:
    """Return what Jackson takes for the text of a key: of text itself."""
    return "null" if key is None else str(key)
