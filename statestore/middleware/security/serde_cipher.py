"""What makes a serde one that writes ciphertext, and keeps values out of its errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from statestore.errors import DeserializationError, RecordRefusedError, SerializationError
from statestore.errors.data import SerdeError
from statestore.format.serde import HeaderSerde, Serde
from statestore.format.serde_columns import ColumnSerde
from statestore.middleware.security.ciphertext import seal, unseal
from statestore.middleware.security.key_source import KeySource

T = TypeVar("T")


@dataclass(frozen=True)
class SerdeCipher:
    """Encrypts and decrypts what one serde, `name`, writes and reads."""

    name: str
    keys: KeySource
    context: str

    def serde(self, inner: Serde[T]) -> Serde[T]:
        """Return the serde that writes and reads ciphertext of what `inner` does."""
        with_headers = None if inner.with_headers is None else self._header_serde(inner.with_headers)
        columns = None if inner.columns is None else self._column_serde(inner.columns)
        return Serde(f"encrypted {inner.name}", *self._both(inner), with_headers, columns)

    def _header_serde(self, inner: HeaderSerde[T]) -> HeaderSerde[T]:
        for_topic = None if inner.for_topic is None else _Ciphered(self, SerdeCipher._for_topic, inner.for_topic)
        return HeaderSerde(*self._both(inner), for_topic)

    def _for_topic(self, for_topic: Callable[[str], HeaderSerde[Any]], topic: str) -> HeaderSerde[Any]:
        return self._header_serde(for_topic(topic))

    def _column_serde(self, inner: ColumnSerde) -> ColumnSerde:
        write = _Ciphered(self, SerdeCipher._write_column, inner.serialize)
        read = _Ciphered(self, SerdeCipher._read_column, inner.deserialize)
        return ColumnSerde(f"encrypted {inner.name}", inner.type, write, read)

    def _both(self, inner: Serde[Any] | HeaderSerde[Any]) -> tuple[_Ciphered, _Ciphered]:
        write = _Ciphered(self, SerdeCipher._write, inner.serialize)
        return write, _Ciphered(self, SerdeCipher._read, inner.deserialize)

    def _write(self, serialize: Callable[..., Any], *value: Any) -> bytes:
        return self._seal(self._run("write", SerializationError, serialize, *value))

    def _read(self, deserialize: Callable[..., Any], data: bytes, *headers: Any) -> Any:
        return self._run("read", DeserializationError, deserialize, self._unseal(data), *headers)

    def _write_column(self, serialize: Callable[..., Any], column: pa.Array) -> pa.BinaryArray:
        rows = self._run("write", SerializationError, serialize, column).to_pylist()
        return pa.array([None if data is None else self._seal(data) for data in rows], pa.binary())

    def _read_column(self, deserialize: Callable[..., Any], column: pa.BinaryArray) -> pa.Array:
        rows = [None if data is None else self._unseal(data) for data in column.to_pylist()]
        return self._run("read", DeserializationError, deserialize, pa.array(rows, pa.binary()))

    def _seal(self, data: bytes) -> bytes:
        return seal(self.keys, data, (b"stored", self.context.encode()))

    def _unseal(self, data: bytes) -> bytes:
        try:
            return unseal(self.keys, data, (b"stored", self.context.encode()), "a value")
        except RecordRefusedError as error:
            raise DeserializationError(f"encrypted {self.name}: {error}") from error

    def _run(self, doing: str, error: type[SerdeError], function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the serde. Raises `error`, without what the serde's own says of the value."""
        try:
            return function(*arguments)
        except SerdeError as raised:
            why = type(raised.__cause__ or raised).__name__
            raise error(f"encrypted {self.name}: can't {doing} a value ({why})") from None


@dataclass(frozen=True)
class _Ciphered:
    """A function of a serde, around which a cipher does something. Picklable if it is, and equal if all three are."""

    cipher: SerdeCipher
    around: Callable[..., Any]
    inner: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.around(self.cipher, self.inner, *arguments)
