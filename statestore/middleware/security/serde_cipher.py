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
        with_headers = None if inner.with_headers is None else self.header_serde(inner.with_headers)
        columns = None if inner.columns is None else self._column_serde(inner.columns)
        plain = _Encrypt(self, inner.serialize), _Decrypt(self, inner.deserialize)
        return Serde(f"encrypted {inner.name}", *plain, with_headers, columns)

    def header_serde(self, inner: HeaderSerde[T]) -> HeaderSerde[T]:
        """Do the same of one that is passed headers."""
        for_topic = None if inner.for_topic is None else _ForTopic(self, inner.for_topic)
        return HeaderSerde(_Encrypt(self, inner.serialize), _Decrypt(self, inner.deserialize), for_topic)

    def seal(self, data: bytes) -> bytes:
        """Return the ciphertext of what the serde wrote."""
        return seal(self.keys, data, self._fields)

    def unseal(self, data: bytes) -> bytes:
        """Return what the serde wrote. Raises DeserializationError."""
        try:
            return unseal(self.keys, data, self._fields, "a value")
        except RecordRefusedError as error:
            raise DeserializationError(f"encrypted {self.name}: {error}") from error

    def run(self, doing: str, error: type[SerdeError], function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the serde. Raises `error`, without what the serde's own says of the value."""
        try:
            return function(*arguments)
        except SerdeError as raised:
            why = type(raised.__cause__ or raised).__name__
            raise error(f"encrypted {self.name}: can't {doing} a value ({why})") from None

    def _column_serde(self, inner: ColumnSerde) -> ColumnSerde:
        both = _EncryptColumn(self, inner.serialize), _DecryptColumn(self, inner.deserialize)
        return ColumnSerde(f"encrypted {inner.name}", inner.type, *both)

    @property
    def _fields(self) -> tuple[bytes, bytes]:
        return b"stored", self.context.encode()


@dataclass(frozen=True)
class _Encrypt:
    cipher: SerdeCipher
    serialize: Callable[..., Any]

    def __call__(self, *value: Any) -> bytes:
        return self.cipher.seal(self.cipher.run("write", SerializationError, self.serialize, *value))


@dataclass(frozen=True)
class _Decrypt:
    cipher: SerdeCipher
    deserialize: Callable[..., Any]

    def __call__(self, data: bytes, *headers: Any) -> Any:
        return self.cipher.run("read", DeserializationError, self.deserialize, self.cipher.unseal(data), *headers)


@dataclass(frozen=True)
class _EncryptColumn:
    """Does to each row what _Encrypt does to one; null stays null."""

    cipher: SerdeCipher
    serialize: Callable[..., Any]

    def __call__(self, column: pa.Array) -> pa.BinaryArray:
        rows = self.cipher.run("write", SerializationError, self.serialize, column).to_pylist()
        return pa.array([None if data is None else self.cipher.seal(data) for data in rows], pa.binary())


@dataclass(frozen=True)
class _DecryptColumn:
    cipher: SerdeCipher
    deserialize: Callable[..., Any]

    def __call__(self, column: pa.BinaryArray) -> pa.Array:
        rows = [None if data is None else self.cipher.unseal(data) for data in column.to_pylist()]
        return self.cipher.run("read", DeserializationError, self.deserialize, pa.array(rows, pa.binary()))


@dataclass(frozen=True)
class _ForTopic:
    cipher: SerdeCipher
    for_topic: Callable[[str], HeaderSerde[Any]]

    def __call__(self, topic: str) -> HeaderSerde[Any]:
        return self.cipher.header_serde(self.for_topic(topic))
