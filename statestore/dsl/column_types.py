"""Windowed keys and changes as Arrow columns, whose rows are Windowed and Change again for who takes records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statestore.dsl.change import Change
from statestore.format.binary_columns import Integers
from statestore.stores.iterator import Windowed


class _WindowedScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no types
    def as_py(self, **options: Any) -> Windowed | None:
        """Return the row."""
        row = None if self.value is None else self.value.as_py(**options)
        return None if row is None else Windowed(**row)


class WindowedType(pa.ExtensionType):  # type: ignore[misc]
    """Keys with start and end of their windows, in milliseconds since the epoch."""

    def __init__(self, key: pa.DataType) -> None:
        fields = [("key", key), ("start_ms", pa.int64()), ("end_ms", pa.int64())]
        super().__init__(pa.struct(fields), "statestore.windowed")
        self._made_of = (key,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of

    def __arrow_ext_serialize__(self) -> bytes:
        """Return nothing: the storage says it all."""
        return b""

    def __arrow_ext_scalar_class__(self) -> type[_WindowedScalar]:
        """Return what rows are."""
        return _WindowedScalar


class _ChangeScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no types
    def as_py(self, **options: Any) -> Change | None:
        """Return the row."""
        row = None if self.value is None else self.value.as_py(**options)
        return None if row is None else Change(**row)


class ChangeType(pa.ExtensionType):  # type: ignore[misc]
    """New and old values of a table."""

    def __init__(self, value: pa.DataType, old: pa.DataType) -> None:
        fields = [("new", value), ("old", old), ("is_latest", pa.bool_())]
        super().__init__(pa.struct(fields), "statestore.change")
        self._made_of = value, old

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of

    def __arrow_ext_serialize__(self) -> bytes:
        """Return nothing: the storage says it all."""
        return b""

    def __arrow_ext_scalar_class__(self) -> type[_ChangeScalar]:
        """Return what rows are."""
        return _ChangeScalar


def windowed_column(keys: pa.Array, starts_ms: Integers, ends_ms: Integers) -> pa.ExtensionArray:
    """Return keys with their windows."""
    type_ = WindowedType(keys.type)
    columns = [keys, pa.array(starts_ms, pa.int64()), pa.array(ends_ms, pa.int64())]
    return pa.ExtensionArray.from_storage(type_, pa.StructArray.from_arrays(columns, fields=list(type_.storage_type)))


def change_column(new: pa.Array, old: pa.Array | None) -> pa.ExtensionArray:
    """Return changes; `old` of None is not known."""
    old = pa.nulls(len(new)) if old is None else old
    type_ = ChangeType(new.type, old.type)
    columns = [new, old, pa.array(np.ones(len(new), np.bool_))]
    return pa.ExtensionArray.from_storage(type_, pa.StructArray.from_arrays(columns, fields=list(type_.storage_type)))
