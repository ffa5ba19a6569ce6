"""Encryption with AES-GCM: of values between topics, of what stores keep, and of single headers.

`Encryption` encrypts values on their way to topics, and decrypts values that come in. `encrypted_serde` wraps a serde,
so that local copies, deltas, snapshots and changelogs hold only ciphertext. `HeaderEncryption` encrypts headers, which
may stay encrypted in state until `open_header` reads them. A ciphertext names its key:

    frame := head nonce:u8[12] ciphertext:u8[rest]
    head  := magic:u8(=ec) version:u8(=01) flags:u8 key_id

    flags         bit 0: it is bound to its topic
    key_id        size:u8 id:u8[size], as in `frames`
    nonce         random
    ciphertext    as long as the plaintext, then a tag of 16 bytes

It is bound, as additional data, to the canonical bytes (`frames`) of "statestore ciphertext", head, and one of these:

    "value", key, topic (null unless flagged)       the value of a record between topics
    "stored", context                               what a serde writes
    "header", name                                  the value of a header
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from statestore.errors import DeserializationError, FormatError, RecordRefusedError, SerializationError
from statestore.errors.data import SerdeError, TruncatedError
from statestore.errors.middleware import CiphertextRefusedError
from statestore.format.binary_columns import row_objects
from statestore.format.records.header_bytes import encode_headers, parse_headers
from statestore.format.serde import HeaderSerde, Serde
from statestore.format.serde_columns import ColumnSerde
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.middleware.application import options, value_of, with_header_where
from statestore.middleware.security.frames import canonical_bytes, read_key_id, sized_text
from statestore.middleware.security.keys import AesKey, KeyedInterceptor, KeyProvider, KeySource

__all__ = ["Encryption", "HeaderEncryption", "encrypted_serde", "open_header"]

_T = TypeVar("_T")

ENCRYPTION_HEADER: Final = "statestore-encryption"
"""The header that says how a record's value is encrypted: `aes-gcm`."""

_AES_GCM: Final = b"aes-gcm"
_DOMAIN: Final = b"statestore ciphertext"
_MAGIC: Final = b"\xec\x01"
_TOPIC_IS_BOUND: Final = 1
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_FLAGS_AT: Final = len(_MAGIC)


class Encryption(KeyedInterceptor):
    """Encrypts the values of emitted records, and decrypts those of ingested ones.

    A ciphertext is bound to its record's key, so it can't be moved to another key. Null values stay null; keys and
    headers stay readable.

    Args:
        keys: the keys that decrypt; the active one encrypts.
        encrypt: whether to encrypt emitted values; if not, no active key is needed.
        decrypt: whether to decrypt ingested values; if not, they pass as they are.
        bind_topic: whether to bind a value to its topic, too. A record can't be mirrored to another topic then.
        required: whether a value that is not encrypted is refused; if not, it passes unless its record is marked as
            encrypted.
    """

    kind = "encryption"
    marks = (ENCRYPTION_HEADER,)
    _options = options(CLASS="keys!", BOOLEAN="encrypt decrypt required bind.topic")
    not_after: ClassVar[Mapping[str, str]] = {
        "claim-check": "what was checked in would lie there unencrypted: encryption has to come first"
    }

    def __init__(
        self,
        keys: KeyProvider,
        *,
        encrypt: bool = True,
        decrypt: bool = True,
        bind_topic: bool = False,
        required: bool = True,
    ) -> None:
        super().__init__(keys, emits=encrypt, ingests=decrypt, required=required)
        self._bind_topic: Final = bind_topic
        if not decrypt:
            self.changes = (ENCRYPTION_HEADER,)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Encrypt a record's value. Raises KeyUnusableError."""
        if not self._emits:
            return (record,)
        record.headers.remove(ENCRYPTION_HEADER)
        if record.value is None:
            return (record,)
        made = record.copy(value=self._encrypted(record.topic, record.key, record.value))
        made.headers.add(ENCRYPTION_HEADER, _AES_GCM)
        return (made,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Encrypt values."""
        if not self._emits:
            return records
        values = [None if row[2] is None else self._encrypted(*row) for row in _rows(records)]
        made = records.without_header(ENCRYPTION_HEADER).with_columns(value=pa.array(values, pa.binary()))
        return with_header_where(made, records.value.is_valid(), ENCRYPTION_HEADER, _AES_GCM)

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Decrypt a record's value. Raises CiphertextRefusedError and UnknownKeyIdError."""
        if not self._ingests:
            return (record,)
        is_marked = value_of(record.headers, ENCRYPTION_HEADER) is not None
        record.headers.remove(ENCRYPTION_HEADER)
        value = self._decrypted(record.topic, record.key, record.value, is_marked)
        return (record if value is record.value else record.copy(value=value),)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Decrypt values."""
        if not self._ingests:
            return records
        marks = records.header(ENCRYPTION_HEADER).is_valid().to_pylist()
        values = [self._decrypted(*row, mark) for row, mark in zip(_rows(records), marks, strict=True)]
        return records.without_header(ENCRYPTION_HEADER).with_columns(value=pa.array(values, pa.binary()))

    def _encrypted(self, topic: str, key: bytes | None, value: bytes) -> bytes:
        fields = _fields_of_value(key, topic if self._bind_topic else None)
        return seal(self._keys, value, fields, topic_is_bound=self._bind_topic)

    def _decrypted(self, topic: str, key: bytes | None, value: bytes | None, is_marked: bool) -> bytes | None:
        if value is None or not (is_marked or self._required):
            return value
        is_bound = topic_is_bound(value)
        if self._bind_topic and is_sealed(value) and not is_bound:
            raise CiphertextRefusedError(what="the value", reason="it is not bound to its topic")
        return unseal(self._keys, value, _fields_of_value(key, topic if is_bound else None), "the value")


class HeaderEncryption(KeyedInterceptor):
    """Encrypts single headers of emitted records, and decrypts those of ingested ones or leaves them encrypted.

    Left encrypted, they stay so in state and wherever records go; `open_header` decrypts one. A header that the keys
    can decrypt is not encrypted again. A ciphertext is bound to its header's name only: sign the header if nobody may
    move it to another record. Null headers stay null.

    Args:
        names: the headers to encrypt. Others pass as they are.
        keys: the keys that decrypt; the active one encrypts.
        encrypt: whether to encrypt headers of emitted records; if not, no active key is needed.
        open: whether to decrypt headers of ingested records.
        required: whether a header that should be decrypted but is not encrypted is refused; if not, it passes.
    """

    kind = "header-encryption"
    _options = options(CLASS="keys!", LIST="names!", BOOLEAN="encrypt open required")

    def __init__(
        self, names: Sequence[str], keys: KeyProvider, *, encrypt: bool = True, open: bool = True, required: bool = True
    ) -> None:
        """Raise ValueError if there are no names, TypeError for one text instead of a list."""
        if isinstance(names, str):
            raise TypeError("names must be a list of header names, not one text")
        if not names:
            raise ValueError("there must be a header to encrypt")
        super().__init__(keys, emits=encrypt, ingests=open, required=required)
        self._names: Final = frozenset(names)
        if open and required:
            self.goes_by = self._names
        if not open:
            self.changes = self._names

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Encrypt a record's headers. Raises KeyUnusableError."""
        return (self._changed(record, self._sealed) if self._emits else record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Encrypt headers."""
        return self._changed_columns(records, self._sealed) if self._emits else records

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Decrypt a record's headers, unless they stay encrypted. Raises CiphertextRefusedError, UnknownKeyIdError."""
        return (self._changed(record, self._opened) if self._ingests else record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Decrypt headers."""
        return self._changed_columns(records, self._opened) if self._ingests else records

    def _sealed(self, name: str, value: bytes) -> bytes:
        if is_sealed(value):
            try:
                unseal(self._keys, value, _fields_of_header(name), name)
            except RecordRefusedError:
                pass  # it only looks like a ciphertext, or we have no key for it: encrypt it in any case
            else:
                return value
        return seal(self._keys, value, _fields_of_header(name))

    def _opened(self, name: str, value: bytes) -> bytes:
        if not (self._required or is_sealed(value)):
            return value
        return unseal(self._keys, value, _fields_of_header(name), f"header {name!r}")

    def _changed(self, record: Any, change: Callable[[str, bytes], bytes]) -> Any:
        if not any(header.key in self._names for header in record.headers):
            return record
        return record.copy(headers=self._pairs(record.headers, change))

    def _changed_columns(self, records: RecordColumns, change: Callable[[str, bytes], bytes]) -> RecordColumns:
        texts = [name.encode() for name in self._names]
        rows = records.headers.to_pylist()
        for row, data in enumerate(rows):
            if any(text in data for text in texts):
                rows[row] = encode_headers(self._pairs(parse_headers(data), change))
        return records.with_columns(headers=pa.array(rows, pa.binary()))

    def _pairs(
        self, pairs: Iterable[tuple[str, bytes | None]], change: Callable[[str, bytes], bytes]
    ) -> list[tuple[str, bytes | None]]:
        return [
            (name, change(name, value) if value is not None and name in self._names else value) for name, value in pairs
        ]


def open_header(headers: Headers, name: str, keys: KeyProvider) -> bytes | None:
    """Return the plaintext of the last header of a name; None if there is none, or it is null.

    Raises CiphertextRefusedError if it is not encrypted or was changed, UnknownKeyIdError if its key is missing.
    """
    if (value := value_of(headers, name)) is None:
        return None
    return unseal(KeySource(keys, HeaderEncryption.kind), value, _fields_of_header(name), f"header {name!r}")


def encrypted_serde(serde: Serde[_T], keys: KeyProvider, *, context: str = "") -> Serde[_T]:
    """Return a serde that encrypts what `serde` writes, for the values of a store, a source or a sink.

    Not for keys: equal keys get different ciphertexts, so a store would not find them. `context` binds bytes to their
    place, such as a store's name: bytes of another context are refused. Bytes of an old key can be read while the ring
    has that key. A function that provides keys is called once, where the serde is first used.

    Reading raises DeserializationError for bytes that are not encrypted, were changed, or whose key is missing. Errors
    never show a value, even where those of `serde` do.
    """
    return _SerdeCipher(serde.name, KeySource(keys, "encrypted serde"), context).serde(serde)


def _fields_of_value(key: bytes | None, topic: str | None) -> tuple[bytes | None, ...]:
    return b"value", key, None if topic is None else topic.encode()


def _fields_of_header(name: str) -> tuple[bytes, bytes]:
    return b"header", name.encode()


def _rows(records: RecordColumns) -> Iterable[tuple[str, Any, Any]]:
    return zip(*map(row_objects, (records.topic, records.key, records.value)), strict=True)


@dataclass(frozen=True)
class _SerdeCipher:
    """Encrypts and decrypts what one serde, `name`, writes and reads."""

    name: str
    keys: KeySource
    context: str

    def serde(self, inner: Serde[_T]) -> Serde[_T]:
        with_headers = None if inner.with_headers is None else self._header_serde(inner.with_headers)
        columns = None if inner.columns is None else self._column_serde(inner.columns)
        return Serde(f"encrypted {inner.name}", *self._both(inner), with_headers, columns)

    def _header_serde(self, inner: HeaderSerde[_T]) -> HeaderSerde[_T]:
        for_topic = None if inner.for_topic is None else _Ciphered(self, _SerdeCipher._for_topic, inner.for_topic)
        return HeaderSerde(*self._both(inner), for_topic)

    def _for_topic(self, for_topic: Callable[[str], HeaderSerde[Any]], topic: str) -> HeaderSerde[Any]:
        return self._header_serde(for_topic(topic))

    def _column_serde(self, inner: ColumnSerde) -> ColumnSerde:
        write = _Ciphered(self, _SerdeCipher._write_column, inner.serialize)
        read = _Ciphered(self, _SerdeCipher._read_column, inner.deserialize)
        return ColumnSerde(f"encrypted {inner.name}", inner.type, write, read)

    def _both(self, inner: Serde[Any] | HeaderSerde[Any]) -> tuple[_Ciphered, _Ciphered]:
        write = _Ciphered(self, _SerdeCipher._write, inner.serialize)
        return write, _Ciphered(self, _SerdeCipher._read, inner.deserialize)

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
        """Call a function of the serde. Raises `error`, without the serde's message, which may show the value."""
        try:
            return function(*arguments)
        except SerdeError as raised:
            why = type(raised.__cause__ or raised).__name__
            raise error(f"encrypted {self.name}: can't {doing} a value ({why})") from None


@dataclass(frozen=True)
class _Ciphered:
    """A function of a serde with a cipher around it. Picklable if it is, and equal if all three are."""

    cipher: _SerdeCipher
    around: Callable[..., Any]
    inner: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.around(self.cipher, self.inner, *arguments)


def seal(keys: KeySource, data: bytes, fields: Iterable[bytes | None], *, topic_is_bound: bool = False) -> bytes:
    """Return the frame of encrypted data, bound to these fields. Raises KeyUnusableError."""
    key_id, key = keys.active(AesKey)
    head = _MAGIC + (b"\x01" if topic_is_bound else b"\x00") + sized_text(key_id)
    nonce = os.urandom(_NONCE_BYTES)
    return head + nonce + key.encrypt(nonce, data, canonical_bytes((_DOMAIN, head, *fields)))


def unseal(keys: KeySource, frame: bytes, fields: Iterable[bytes | None], what: str) -> bytes:
    """Return the plaintext; `what` names it in errors. Raises CiphertextRefusedError and UnknownKeyIdError."""
    if not is_sealed(frame):
        raise CiphertextRefusedError(what=what, reason="it is not encrypted, or not by statestore")
    try:
        if len(frame) > _FLAGS_AT and frame[_FLAGS_AT] & ~_TOPIC_IS_BOUND:
            raise FormatError("ciphertext", f"flags {frame[_FLAGS_AT]} are not known")
        key_id, end = read_key_id(frame, _FLAGS_AT + 1)
        behind = end + _NONCE_BYTES
        if len(frame) < behind + _TAG_BYTES:
            raise TruncatedError("ciphertext", wanted=behind + _TAG_BYTES, got=len(frame))
    except FormatError as error:
        raise CiphertextRefusedError(what=what, reason=f"malformed: {error}") from None
    bound = canonical_bytes((_DOMAIN, frame[:end], *fields))
    data = keys.key(key_id, AesKey).decrypt(frame[end:behind], frame[behind:], bound)
    if data is None:
        raise CiphertextRefusedError(what=what, reason=f"it was changed, moved, or not encrypted by key {key_id!r}")
    return data


def is_sealed(data: bytes) -> bool:
    """Return whether bytes begin as a frame does."""
    return data.startswith(_MAGIC)


def topic_is_bound(frame: bytes) -> bool:
    """Return whether a frame says that it is bound to its topic."""
    return is_sealed(frame) and len(frame) > _FLAGS_AT and bool(frame[_FLAGS_AT] & _TOPIC_IS_BOUND)
