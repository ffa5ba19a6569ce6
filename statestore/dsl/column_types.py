"""Windowed keys and changes as Arrow columns, whose rows as Python objects are Windowed and Change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statestore.dsl.change import Change
from statestore.format.binary_columns import Integers
from statestore.stores.iterator import Windowed


class _WindowedScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no types
    _row: type = Windowed

    def as_py(self, **options: Any) -> Any:
        """Return the row."""
        row = None if self.value is None else self.value.as_py(**options)
        return None if row is None else self._row(**row)


class _ChangeScalar(_WindowedScalar):
    _row = Change


class _RowType(pa.ExtensionType):  # type: ignore[misc]
    _scalar: type

    def __init__(self, name: str, fields: dict[str, pa.DataType], *made_of: pa.DataType) -> None:
        super().__init__(pa.struct(fields), name)
        self._made_of = made_of

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of

    def __hash__(self) -> int:
        """Return the same for equal types."""
        return hash(str(self.storage_type))

    def __arrow_ext_serialize__(self) -> bytes:
        """Return nothing: the storage type has everything."""
        return b""

    def __arrow_ext_scalar_class__(self) -> type:
        """Return the class of rows."""
        return self._scalar

    def column(self, *columns: pa.Array) -> pa.ExtensionArray:
        """Return a column of this type from those of its fields."""
        return pa.ExtensionArray.from_storage(self, pa.StructArray.from_arrays(columns, fields=list(self.storage_type)))


class WindowedType(_RowType):
    """Keys with start and end of their windows, in milliseconds since the epoch."""

    _scalar = _WindowedScalar

    def __init__(self, key: pa.DataType) -> None:
        fields = {"key": key, "start_ms": pa.int64(), "end_ms": pa.int64()}
        super().__init__("statestore.windowed", fields, key)


class ChangeType(_RowType):
    """New and old values of a table."""

    _scalar = _ChangeScalar

    def __init__(self, value: pa.DataType, old: pa.DataType) -> None:
        super().__init__("statestore.change", {"new": value, "old": old, "is_latest": pa.bool_()}, value, old)


def windowed_column(keys: pa.Array, starts_ms: Integers, ends_ms: Integers) -> pa.ExtensionArray:
    """Return keys with their windows."""
    return WindowedType(keys.type).column(keys, pa.array(starts_ms, pa.int64()), pa.array(ends_ms, pa.int64()))


def change_column(new: pa.Array, old: pa.Array | None) -> pa.ExtensionArray:
    """Return changes; an `old` of None is unknown."""
    old = pa.nulls(len(new)) if old is None else old
    return ChangeType(new.type, old.type).column(new, old, pa.array(np.ones(len(new), np.bool_)))
