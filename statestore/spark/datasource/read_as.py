"""How the columns key and value are shown: as bytes, or as a standard serde reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from statestore.errors import DataSourceOptionError, DeserializationError, SerializationError
from statestore.format.json_serde import JSON_COLUMNS
from statestore.format.serde import STANDARD_SERDES, Serde, standard_serde
from statestore.format.serde_columns import STRING_COLUMNS, ColumnSerde
from statestore.spark.spark_versions import filters

BYTES: Final = "bytes"
_EQUALITIES: Final = (filters.EqualTo, filters.EqualNullSafe, filters.In)
_WRITTEN_ONE_WAY: Final = ("string", "int32", "int64", "boolean")
"""Encodings in which values are equal exactly if their bytes are; not double, with -0.0 and 0.0, and not JSON."""


@dataclass(frozen=True)
class ReadAs:
    """Names of standard serdes for keys and for values; JSON is its text."""

    key: str = BYTES
    value: str = BYTES

    @classmethod
    def of(cls, key: str | Serde[Any] | None, value: str | Serde[Any] | None) -> ReadAs:
        """Return the names of standard serdes; None is bytes. Raises ValueError for any other serde."""
        return cls(*(BYTES if each is None else standard_serde(each).name for each in (key, value)))

    def schema(self, of_bytes: pa.Schema) -> pa.Schema:
        """Return the schema of rows whose schema with bytes is `of_bytes`."""
        return pa.schema(
            [each.with_type(self._columns(each.name).type) if self._reads(each.name) else each for each in of_bytes]
        )

    def read(self, rows: pa.RecordBatch, store: str) -> pa.RecordBatch:
        """Return rows of bytes in `schema`. Raises DataSourceOptionError for bytes that the serde can't read."""
        if self == AS_BYTES:
            return rows
        schema = self.schema(rows.schema)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        for name in filter(self._reads, ("key", "value")):
            try:
                columns[name] = self._columns(name).deserialize(columns[name])
            except DeserializationError as cause:
                raise DataSourceOptionError(
                    f"{name}As",
                    f"is {getattr(self, name)}, but store {store!r} has a {name} that is not ({cause}): leave the "
                    "option out to see bytes",
                ) from cause
        return pa.record_batch([columns[field.name] for field in schema], schema=schema)

    def key_bytes(self, kind: type[filters.Filter], values: Sequence[Any]) -> list[bytes | None] | None:
        """Return the bytes of the keys in a filter; None if only Spark can compare them."""
        if self.key == BYTES:
            return list(values) if all(each is None or isinstance(each, bytes) for each in values) else None
        if kind not in _EQUALITIES or self.key not in _WRITTEN_ONE_WAY:
            return None
        serialize: Callable[[Any], bytes] = STANDARD_SERDES[self.key].serialize
        try:
            return [None if each is None else serialize(each) for each in values]
        except SerializationError:
            return None

    def _reads(self, column: str) -> bool:
        return column in ("key", "value") and getattr(self, column) != BYTES

    def _columns(self, column: str) -> ColumnSerde:
        columns = STANDARD_SERDES[getattr(self, column)].columns
        return STRING_COLUMNS if columns is None or columns == JSON_COLUMNS else columns


AS_BYTES: Final = ReadAs()
