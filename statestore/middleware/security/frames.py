"""The bytes that are signed and bound to ciphertexts, and the frame of a signature in its header.

    key_id    := size:u8 id:u8[size]                    UTF-8, 1 to 255 bytes, printable
    canonical := { size:i32_be field:u8[size] }*        a size of -1 is a null field, which has no bytes
    frame := head signature:u8[rest]
    head  := version:u8(=02) algorithm:u8 flags:u8 key_id time_ms:i64_be serial:u64_be
             name_count:u8 { size:u8 name:u8[size] }[name_count]

    algorithm    1 HMAC-SHA256, 32 bytes of signature; 2 Ed25519, 64 bytes
    flags        bit 0: the topic is signed, too
    time_ms      when it was signed, milliseconds since the epoch
    serial       tells apart equal records that are signed in the same millisecond
    names        of the headers that are not signed, whether the record has them or not; UTF-8

Signed are the canonical bytes of these fields, in this order:

    "statestore signature", head, topic (null if it is not signed), key, value,
    then name and value of each header in order, but for those named and the signature's own

Version 1 is still read. It names the headers that are signed: for each name their number, as u32_be, then their values
in order. The head is signed, so neither version can be taken for the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError

KEY_ID_BYTES_MAX: Final = 255
NAMES_MAX: Final = 32
"""How many headers a signature may name."""
VERSION: Final = 2
"""The version of signatures that are made."""

Pairs: TypeAlias = "Sequence[tuple[str, bytes | None]]"
"""Names and values of headers."""

_DOMAIN: Final = b"statestore signature"
_VERSION_OF_CHOSEN: Final = 1
_TOPIC_IS_SIGNED: Final = 1
_FIRST, _TIME_AND_SERIAL, _COUNT = map(struct.Struct, (">BBB", ">qQ", ">I"))
_SIZE: Final = struct.Struct(">i")
_NULL: Final = _SIZE.pack(-1)


def is_key_id(key_id: object) -> TypeGuard[str]:
    """Return whether something may be the id of a key."""
    return isinstance(key_id, str) and key_id.isprintable() and 0 < len(key_id.encode()) <= KEY_ID_BYTES_MAX


def sized_text(text: str) -> bytes:
    """Return a text of at most 255 bytes in UTF-8 behind its size."""
    data = text.encode()
    return bytes((len(data),)) + data


def read_sized_text(data: bytes, position: int, what: str) -> tuple[str, int]:
    """Return the text at a position, and the position behind it.

    Raises TruncatedError, and FormatError for text that is not UTF-8.
    """
    end = position + 1 + (data[position] if position < len(data) else 0)
    if end > len(data):
        raise TruncatedError(what, wanted=end - position, got=len(data) - position)
    try:
        return data[position + 1 : end].decode(), end
    except UnicodeDecodeError as cause:
        raise FormatError(what, "it is not UTF-8") from cause


def read_key_id(data: bytes, position: int) -> tuple[str, int]:
    """Return the key id at a position, and the position behind it. Raises what `read_sized_text` raises."""
    key_id, end = read_sized_text(data, position, "key id")
    if not is_key_id(key_id):
        raise FormatError("key id", "it is empty, too long or not printable")
    return key_id, end


def canonical_bytes(fields: Iterable[bytes | None]) -> bytes:
    """Return fields, each behind its size. Different lists of fields give different bytes."""
    parts: list[bytes] = []
    for field in fields:
        parts += (_NULL,) if field is None else (_SIZE.pack(len(field)), field)
    return b"".join(parts)


@dataclass(frozen=True)
class SignatureHead:
    """What a signature says about itself."""

    algorithm: int
    key_id: str
    time_ms: int
    serial: int
    topic_is_signed: bool
    names: tuple[str, ...]
    """Of version 2 the headers that are not signed, of version 1 those that are."""
    version: int = VERSION

    def to_bytes(self) -> bytes:
        """Return the head of a frame."""
        first = _FIRST.pack(self.version, self.algorithm, _TOPIC_IS_SIGNED if self.topic_is_signed else 0)
        times = _TIME_AND_SERIAL.pack(self.time_ms, self.serial)
        return b"".join(
            (first, sized_text(self.key_id), times, bytes((len(self.names),)), *map(sized_text, self.names))
        )

    @property
    def signs_all_but_names(self) -> bool:
        """Whether `names` are the headers left out; else they are the only ones signed."""
        return self.version != _VERSION_OF_CHOSEN


def read_frame(frame: bytes) -> tuple[SignatureHead, int]:
    """Return the head of a frame, and where its signature begins. Raises FormatError if it is malformed."""
    if len(frame) < _FIRST.size:
        raise TruncatedError("signature", wanted=_FIRST.size, got=len(frame))
    version, algorithm, flags = _FIRST.unpack_from(frame)
    if version not in (_VERSION_OF_CHOSEN, VERSION) or flags & ~_TOPIC_IS_SIGNED:
        raise FormatError("signature", f"version {version} with flags {flags} is not known")
    key_id, position = read_key_id(frame, _FIRST.size)
    behind = position + _TIME_AND_SERIAL.size
    if behind >= len(frame):
        raise TruncatedError("signature", wanted=behind + 1, got=len(frame))
    time_ms, serial = _TIME_AND_SERIAL.unpack_from(frame, position)
    count, position = frame[behind], behind + 1
    if count > NAMES_MAX:
        raise FormatError("signature", f"{count} names of headers are more than {NAMES_MAX}")
    names = []
    for _ in range(count):
        name, position = read_sized_text(frame, position, "name of a header")
        names.append(name)
    return SignatureHead(algorithm, key_id, time_ms, serial, bool(flags), tuple(names), version), position


def signed_bytes(
    head: SignatureHead,
    head_bytes: bytes,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Pairs,
    *,
    own: str,
) -> bytes:
    """Return the bytes to sign; `head_bytes` is the head as in its frame, `own` the signature's header."""
    fields = [_DOMAIN, head_bytes, topic.encode() if head.topic_is_signed else None, key, value]
    if head.signs_all_but_names:
        left_out = {own, *head.names}
        for name, content in headers:
            if name not in left_out:
                fields += (name.encode(), content)
        return canonical_bytes(fields)
    for chosen in head.names:
        found = [content for name, content in headers if name == chosen]
        fields += (_COUNT.pack(len(found)), *found)
    return canonical_bytes(fields)
