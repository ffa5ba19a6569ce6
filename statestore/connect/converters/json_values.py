"""Values of JSON to typed values and back. Source: Kafka's `JsonConverter`: `convertToConnect`, `convertToJson`."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from decimal import MAX_PREC, Context, Decimal
from math import isfinite
from typing import Any, Final

from statestore.connect.converters.json_text import MISSING
from statestore.connect.logical_types import ORDINALS, decimal_from_bytes, decimal_to_bytes, scale_of, scale_of_schema
from statestore.connect.recursion import Steps, all_of, is_steps, settle
from statestore.connect.scalars import Float32, Float64, Instant, Int32, Int64, in_range
from statestore.connect.schema import INTEGER_TYPES, LogicalName, Schema, Struct, Type, is_of_type, type_of
from statestore.connect.typed_map import TypedMap
from statestore.connect.values.number_text import NOT_FINITE, float32_of, float_text, long_of
from statestore.errors import DataException
from statestore.errors.data import NullValueException
from statestore.errors.readable import shape_of

_MOST_INTEGER_DIGITS: Final = 20
_EXACT: Final = Context(prec=MAX_PREC)
_BLANKS: Final = re.compile("[\x00-\x20]+")
_GROUPS: Final = re.compile("[^=]*={0,2}")
_MOST_ADDED_ZEROS: Final = 10_000
_SIMPLE: Final = frozenset({*INTEGER_TYPES, Type.BOOLEAN, Type.STRING})


class PayloadReader:
    """Makes values of JSON. `replace_null` says whether the default stands for null, and for a field that is missing.

    `strict` refuses what is not of the type, or loses something as one.
    """

    def __init__(self, *, strict: bool, replace_null: bool) -> None:
        self._strict = strict
        self._replace_null = replace_null
        self._wrong_nulls = 0  # where Kafka reads null because the type is wrong, and the schema does not allow it

    def read(self, schema: Schema | None, node: Any) -> Any:
        """Return the value of a JSON value. Raises DataException if it can't be one."""
        return settle(self._value(schema, node))

    def _value(self, schema: Schema | None, node: Any) -> Any:
        """Return the value of a JSON value, or the steps to it."""
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
        return (
            self._integer(Schema.INT64_SCHEMA, node)
            if isinstance(node, int)
            else self._float(Schema.FLOAT64_SCHEMA, node)
        )

    def _integer(self, schema: Schema, node: Any) -> int:
        form = INTEGER_TYPES[schema.type]
        if not self._strict:
            return form.wrapped(long_of(node) if _is_number(node) else 0)
        if _is_number(node):
            whole = node if isinstance(node, int) else _whole(node)
            if whole is not None and in_range(whole, form.bits):
                return form(whole)
        raise _wrong(schema, node)

    def _float(self, schema: Schema, node: Any) -> float:
        single = schema.type is Type.FLOAT32
        if not _is_number(node):
            if not self._strict:
                return Float32(0.0) if single else Float64(0.0)
            if isinstance(node, str) and node in NOT_FINITE:
                return Float32(NOT_FINITE[node]) if single else Float64(NOT_FINITE[node])
            raise _wrong(schema, node)
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
            raise _wrong(schema, node)
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
            raise _wrong(schema, node)
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
            raise _wrong(schema, node)
        element_schema = None if schema is None else schema.value_schema
        elements = node if isinstance(node, list) else node.values() if isinstance(node, dict) else ()
        return (yield from all_of(self._value(element_schema, element) for element in elements))

    def _map(self, schema: Schema | None, node: Any) -> Steps:
        key_schema, value_schema = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        if key_schema is None or key_schema.type is Type.STRING:
            if not isinstance(node, dict):
                raise DataException(
                    f"Maps with string fields should be encoded as JSON objects, but found {_kind(node)}"
                )
            found = yield from all_of(self._value(value_schema, element) for element in node.values())
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
            key, found = self._value(key_schema, entry[0]), self._value(value_schema, entry[1])
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
        values = yield from all_of(self._value(each.schema, node.get(each.name)) for each in schema.fields)
        made = Struct.of_checked(schema, {each.name: value for each, value in zip(schema.fields, values, strict=True)})
        if self._wrong_nulls > before:
            made.validate()
        return made

    _typed: Final[dict[Type, Callable[..., Any]]] = {
        **dict.fromkeys(INTEGER_TYPES, _integer),
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
            value = Decimal(node) if node else Decimal(node).copy_abs()  # Java's decimals have no negative zero
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
        scale = scale_of_schema(schema)
        if abs(scale - scale_of(value)) <= _MOST_ADDED_ZEROS or not value:
            found = value.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
            if found == value:
                return found
        raise DataException(f"{shape_of(value)} is not a decimal of scale {scale}")

    def _instant(self, schema: Schema, node: Any) -> Instant:
        is_long = schema.name == LogicalName.TIMESTAMP
        is_integer = isinstance(node, int) and not isinstance(node, bool)
        if not is_integer or not (in_range(node, 64 if is_long else 32) or (is_long and not self._strict)):
            kind, form = str(schema.name).rpartition(".")[2], "integral" if is_long else "integer"
            raise DataException(
                f"Invalid type for {kind}, underlying representation should be {form} but was {_kind(node)}"
            )
        return ORDINALS[schema.name][1](Int64.wrapped(node))

    _logical: Final[dict[str | None, Callable[..., Any]]] = {
        LogicalName.DECIMAL: _decimal,
        **dict.fromkeys(ORDINALS, _instant),
    }


def _wrong(schema: Schema, node: Any) -> DataException:
    return DataException(f"{shape_of(node)} is not a value of {schema}")


def _is_number(node: Any) -> bool:
    return isinstance(node, int | Decimal) and not isinstance(node, bool)


def _whole(value: Decimal) -> int | None:
    """Return a number that has no fraction as an integer, None if it has one or is far too large."""
    if value.adjusted() >= _MOST_INTEGER_DIGITS or value != value.to_integral_value():
        return None
    return int(value)


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


class PayloadWriter:
    """Makes JSON of values: of None, `replace_null` says whether a default stands for it.

    `strict` refuses what would be read as something else: NaN, infinities and keys other than text without a schema,
    null keys, keys that are one as text, and what does not follow the schema as the reader has it.
    """

    def __init__(self, *, strict: bool, replace_null: bool, decimals_are_numbers: bool) -> None:
        self._strict = strict
        self._replace_null = replace_null
        self._decimals_are_numbers = decimals_are_numbers

    def write(self, schema: Schema | None, value: Any) -> Any:
        """Return the JSON of a value. Raises DataException if it does not follow the schema."""
        return settle(self._json(schema, value))

    def _json(self, schema: Schema | None, value: Any) -> Any:
        """Return the JSON of a value, or the steps to it."""
        if value is None:
            return self._null(schema)
        if schema is not None and schema.name == LogicalName.DECIMAL:
            return self._decimal(schema, value)
        if schema is not None and schema.name in ORDINALS:
            return self._instant(schema, value)
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
            return self._json(schema, schema.default)
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
        return (yield from all_of(self._json(element_schema, element) for element in value))

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
            json_key, json_value = self._json(key_schema, key), self._json(value_schema, element)
            json_key = (yield json_key) if is_steps(json_key) else json_key
            json_value = (yield json_value) if is_steps(json_value) else json_value
            if has_names:
                name = "null" if json_key is None else str(json_key)  # as Jackson writes a key
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
        made = yield from all_of(self._json(each.schema, value.get_without_default(each.name)) for each in fields)
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

    def _instant(self, schema: Schema, value: Any) -> int:
        if not isinstance(value, Instant):
            kind = str(schema.name).rpartition(".")[2]
            raise DataException(f"Invalid type for {kind}, expected Instant but was {type(value).__name__}")
        number = ORDINALS[schema.name][0](value)
        if schema.name != LogicalName.DATE:
            return number
        return Int32(number) if self._strict else Int32.wrapped(number)
