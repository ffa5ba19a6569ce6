"""The typed headers of one record: an ordered list of them, in which keys may repeat.

Source: KIP-145's `Headers` and `ConnectHeaders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import EllipsisType
from typing import Any, overload

from statestore.connect import logical_types
from statestore.connect.header import ConnectHeader, check_type, header_in_errors
from statestore.connect.scalars import Instant
from statestore.connect.schema import NUMBER_TYPES, Schema, SchemaAndValue, Struct, Type, is_of_type
from statestore.errors import DataException
from statestore.errors.data import NullValueException
from statestore.errors.readable import shape_of

HeaderTransform = Callable[[ConnectHeader], ConnectHeader | None]
"""Returns what is to stand in a header's place: another one, itself, or None for nothing."""


class ConnectHeaders:
    """The typed headers of one record, in order. Methods that change them return them, so that calls can be chained.

    A method that is given a key of None raises NullValueException, `all_with_name` excepted. What is added is checked
    as Kafka does: its type, not what is inside of a list, map or struct. Two are equal if all headers are, in order.
    """

    __slots__ = ("_changes", "_headers")

    def __init__(self, headers: Iterable[ConnectHeader] | None = None) -> None:
        """Make headers of these, of other ConnectHeaders a copy. Raises NullValueException if one of them is None."""
        self._headers: list[ConnectHeader] = []
        self._changes = 0
        for header in headers or ():
            self._append(header)

    @overload
    def add(self, key: ConnectHeader) -> ConnectHeaders: ...

    @overload
    def add(self, key: str, value: Any, schema: Schema | None = None) -> ConnectHeaders: ...

    def add(
        self, key: ConnectHeader | str, value: Any | EllipsisType = ..., schema: Schema | None = None
    ) -> ConnectHeaders:
        """Append a header: one as it is, or a key with a SchemaAndValue, or a key, a value and perhaps its schema.

        Raises DataException if the value is not of the schema's type, or None where the schema is not optional.
        """
        if value is ...:
            if isinstance(key, str):
                raise TypeError(f"add() needs a value for header {key!r}; None is one")
            return self._append(key)
        if isinstance(value, SchemaAndValue) and schema is None:
            schema, value = value.schema, value.value
        return self._add_typed(key, value, schema)

    def add_string(self, key: str, value: str | None) -> ConnectHeaders:
        """Append a string; None has the optional schema. Raises DataException for anything else."""
        return self._add_typed(key, value, Schema.STRING_SCHEMA if value is not None else Schema.OPTIONAL_STRING_SCHEMA)

    def add_bytes(self, key: str, value: bytes | bytearray | memoryview | None) -> ConnectHeaders:
        """Append bytes; None has the optional schema. Raises DataException for anything else."""
        return self._add_typed(key, value, Schema.BYTES_SCHEMA if value is not None else Schema.OPTIONAL_BYTES_SCHEMA)

    def add_boolean(self, key: str, value: bool) -> ConnectHeaders:
        """Append a boolean. Raises NullValueException for None, DataException for anything else."""
        return self._add_primitive(key, value, Schema.BOOLEAN_SCHEMA)

    def add_byte(self, key: str, value: int) -> ConnectHeaders:
        """Append a number as INT8. Raises DataException if it does not fit, NullValueException for None."""
        return self._add_primitive(key, value, Schema.INT8_SCHEMA)

    def add_short(self, key: str, value: int) -> ConnectHeaders:
        """Append a number as INT16. Raises as `add_byte` does."""
        return self._add_primitive(key, value, Schema.INT16_SCHEMA)

    def add_int(self, key: str, value: int) -> ConnectHeaders:
        """Append a number as INT32. Raises as `add_byte` does."""
        return self._add_primitive(key, value, Schema.INT32_SCHEMA)

    def add_long(self, key: str, value: int) -> ConnectHeaders:
        """Append a number as INT64. Raises as `add_byte` does."""
        return self._add_primitive(key, value, Schema.INT64_SCHEMA)

    def add_float(self, key: str, value: float) -> ConnectHeaders:
        """Append a number as FLOAT32, rounded to it. Raises as `add_byte` does."""
        return self._add_primitive(key, value, Schema.FLOAT32_SCHEMA)

    def add_double(self, key: str, value: float) -> ConnectHeaders:
        """Append a number as FLOAT64. Raises as `add_byte` does."""
        return self._add_primitive(key, value, Schema.FLOAT64_SCHEMA)

    def add_list(self, key: str, value: Sequence[Any] | None, schema: Schema | None) -> ConnectHeaders:
        """Append a list; None goes without a schema. Raises DataException if the schema is not an array's."""
        return self._add_container(key, value, schema, Type.ARRAY)

    def add_map(self, key: str, value: Mapping[Any, Any] | None, schema: Schema | None) -> ConnectHeaders:
        """Append a map; None goes without a schema. Raises DataException if the schema is not a map's."""
        return self._add_container(key, value, schema, Type.MAP)

    def add_struct(self, key: str, value: Struct | None) -> ConnectHeaders:
        """Append a struct with its schema; None goes without one. Raises DataException for anything else."""
        return self._add_container(key, value, value.schema if isinstance(value, Struct) else None, Type.STRUCT)

    def add_decimal(self, key: str, value: Decimal | None) -> ConnectHeaders:
        """Append a decimal with the schema of its scale; None goes without one. Raises DataException if not finite."""
        if value is None:
            return self.add(key, None)
        with header_in_errors(key):
            if not isinstance(value, Decimal):
                raise DataException(
                    f"The value, {shape_of(value)}, is not compatible with the schema {Schema.decimal(0)}"
                )
            return self._append(ConnectHeader(_text(key), value, Schema.decimal(logical_types.scale_of(value))))

    def add_date(self, key: str, value: Instant | datetime | date | None) -> ConnectHeaders:
        """Append a date. Raises DataException if it has a time of the day. None keeps the schema, as Kafka does."""
        return self._add_instant(key, value, Schema.DATE_SCHEMA)

    def add_time(self, key: str, value: Instant | datetime | time | None) -> ConnectHeaders:
        """Append a time of the day. Raises DataException if it has a date. None keeps the schema, as Kafka does."""
        return self._add_instant(key, value, Schema.TIME_SCHEMA)

    def add_timestamp(self, key: str, value: Instant | datetime | date | None) -> ConnectHeaders:
        """Append a point in time. None keeps the schema, as Kafka does."""
        return self._add_instant(key, value, Schema.TIMESTAMP_SCHEMA)

    def last_with_name(self, key: str) -> ConnectHeader | None:
        """Return the last header of this key, which is the one that counts; None if there is none."""
        _text(key)
        return next((header for header in reversed(self._headers) if header.key == key), None)

    def all_with_name(self, key: str) -> tuple[ConnectHeader, ...]:
        """Return all headers of this key, in order."""
        return tuple(header for header in self._headers if header.key == key)

    def remove(self, key: str) -> ConnectHeaders:
        """Remove every header of this key, if there are any."""
        _text(key)
        return self._keep([header for header in self._headers if header.key != key])

    def retain_latest(self, key: str | EllipsisType = ...) -> ConnectHeaders:
        """Remove all headers of this key but the last one; without a key, do so for every key there is."""
        if key is not ...:
            _text(key)
        seen: set[str] = set()
        kept = []
        for header in reversed(self._headers):
            if header.key not in seen:
                kept.append(header)
            if key is ... or header.key == key:
                seen.add(header.key)
        return self._keep(kept[::-1])

    def clear(self) -> ConnectHeaders:
        """Remove all headers."""
        return self._keep([])

    def duplicate(self) -> ConnectHeaders:
        """Return the same headers in a list of their own."""
        return ConnectHeaders(self)

    @overload
    def apply(self, key: HeaderTransform) -> ConnectHeaders: ...

    @overload
    def apply(self, key: str, transform: HeaderTransform) -> ConnectHeaders: ...

    def apply(self, key: str | HeaderTransform, transform: HeaderTransform | EllipsisType = ...) -> ConnectHeaders:
        """Put in the place of each header, or of each one of a key, what a function makes of it.

        What was done stays if the function raises. Raises RuntimeError if the function adds or removes headers.
        """
        if isinstance(transform, EllipsisType):
            if key is None or isinstance(key, str):
                raise TypeError(f"apply() needs a function for header {key!r}")
            function, name = key, None
        else:
            function, name = transform, _text(key)
        position = 0
        while position < len(self._headers):
            header = self._headers[position]
            if name is None or header.key == name:
                changes = self._changes
                with header_in_errors(header.key):
                    updated = function(header)
                self._refuse_changes_since(changes)
                if updated is None:
                    del self._headers[position]
                    self._changes += 1
                    continue
                self._headers[position] = updated
            position += 1
        return self

    def _append(self, header: Any) -> ConnectHeaders:
        if header is None:
            raise NullValueException("Unable to add a null header.")
        if not isinstance(header, ConnectHeader):
            raise TypeError(f"a typed header is a ConnectHeader, not {shape_of(header)}")
        self._headers.append(header)
        self._changes += 1
        return self

    def _add_typed(self, key: Any, value: Any, schema: Schema | None) -> ConnectHeaders:
        check_type(key, schema, value)
        return self._append(ConnectHeader(_text(key), value, schema))

    def _add_primitive(self, key: str, value: Any, schema: Schema) -> ConnectHeaders:
        if value is None:
            raise NullValueException(f"There is no {schema.type} without a value", header=key)
        number = NUMBER_TYPES.get(schema.type)
        return self._add_typed(key, number(value) if number and is_of_type(value, schema.type) else value, schema)

    def _add_container(self, key: str, value: Any, schema: Schema | None, expected: Type) -> ConnectHeaders:
        if value is None:
            return self.add(key, None)
        if not is_of_type(value, expected):
            raise DataException(f"Expecting {expected} but instead found {type(value).__name__}", header=key)
        if schema is None:
            raise NullValueException(f"A value of type {expected} needs a schema", header=key)
        if schema.type is not expected:
            raise DataException(f"Expecting {expected} but instead found {schema.type}", header=key)
        return self._append(ConnectHeader(_text(key), value, schema))

    def _add_instant(self, key: str, value: Any, schema: Schema) -> ConnectHeaders:
        if value is not None:
            with header_in_errors(key):
                value = Instant.of(value)
                logical_types.ORDINALS[schema.name][0](value)  # raises if it is not such a date or time
        return self._append(ConnectHeader(_text(key), value, schema))

    def _keep(self, headers: list[ConnectHeader]) -> ConnectHeaders:
        if len(headers) < len(self._headers):
            self._headers[:] = headers
            self._changes += 1
        return self

    def _refuse_changes_since(self, changes: int) -> None:
        if self._changes != changes:
            raise RuntimeError("headers were added or removed while others went through them")

    def __iter__(self) -> Iterator[ConnectHeader]:
        """Yield the headers in order. Raises RuntimeError if headers were added or removed meanwhile."""
        changes = self._changes
        for header in self._headers:
            self._refuse_changes_since(changes)
            yield header

    def __getitem__(self, position: int) -> ConnectHeader:
        """Return the header at a position. Raises IndexError if there is none."""
        return self._headers[position]

    def __delitem__(self, position: int) -> None:
        """Remove the header at a position. Raises IndexError if there is none."""
        del self._headers[position]
        self._changes += 1

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._headers)

    def __contains__(self, item: object) -> bool:
        """Return whether there is a header of this key or, given a header, one equal to it."""
        if isinstance(item, str):
            return any(header.key == item for header in self._headers)
        return item in self._headers

    def __eq__(self, other: object) -> bool:
        return self._headers == other._headers if isinstance(other, ConnectHeaders) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._headers))  # of records it is a part; it changes with the headers, as in Kafka

    def __repr__(self) -> str:
        return f"ConnectHeaders({self._headers!r})"


def _text(key: Any) -> str:
    if key is None:
        raise NullValueException("Header key cannot be null")
    if not isinstance(key, str):
        raise TypeError(f"a header key must be a str, got {key!r}")
    return key
