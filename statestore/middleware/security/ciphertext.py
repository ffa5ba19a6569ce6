"""A ciphertext as it stands in a value, in a header or in state: AES-GCM, with the id of its key.

    frame := head nonce:u8[12] ciphertext:u8[rest]
    head  := magic:u8(=ec) version:u8(=01) flags:u8 key_id

    flags         bit 0: it is bound to its topic
    key_id        size:u8 id:u8[size], as in `frames`
    nonce         random
    ciphertext    as long as what was encrypted, and the tag of 16 bytes behind it

It is bound, as additional data, to the canonical bytes (`frames`) of "statestore ciphertext", head, and what it is:

    "value", key, topic (null unless flagged)       the value of a record between topics
    "stored", context                               what a serde writes
    "header", name                                  the value of a header
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError
from statestore.errors.middleware import CiphertextRefusedError
from statestore.middleware.security.frames import canonical_bytes, read_key_id, sized_text
from statestore.middleware.security.keys import AesKey, KeySource

_DOMAIN: Final = b"statestore ciphertext"
_MAGIC: Final = b"\xec\x01"
_TOPIC_IS_BOUND: Final = 1
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_FLAGS_AT: Final = len(_MAGIC)


def seal(keys: KeySource, data: bytes, fields: Iterable[bytes | None], *, topic_is_bound: bool = False) -> bytes:
    """Return the frame of encrypted data, bound to these fields. Raises KeyUnusableError."""
    key_id, key = keys.active(AesKey)
    head = _MAGIC + (b"\x01" if topic_is_bound else b"\x00") + sized_text(key_id)
    nonce = os.urandom(_NONCE_BYTES)
    return head + nonce + key.encrypt(nonce, data, _bound(head, fields))


def unseal(keys: KeySource, frame: bytes, fields: Iterable[bytes | None], what: str) -> bytes:
    """Return what was encrypted; `what` names it in errors. Raises CiphertextRefusedError and UnknownKeyIdError."""
    if not is_sealed(frame):
        raise CiphertextRefusedError(what=what, reason="it is not encrypted, or not by statestore")
    try:
        key_id, end = _read_head(frame)
    except FormatError as error:
        raise CiphertextRefusedError(what=what, reason=f"malformed: {error}") from None
    behind = end + _NONCE_BYTES
    data = keys.key(key_id, AesKey).decrypt(frame[end:behind], frame[behind:], _bound(frame[:end], fields))
    if data is None:
        raise CiphertextRefusedError(what=what, reason=f"it was changed, moved, or not encrypted by key {key_id!r}")
    return data


def is_sealed(data: bytes) -> bool:
    """Return whether bytes begin as a frame does."""
    return data.startswith(_MAGIC)


def topic_is_bound(frame: bytes) -> bool:
    """Return whether a frame says that it is bound to its topic."""
    return is_sealed(frame) and len(frame) > _FLAGS_AT and bool(frame[_FLAGS_AT] & _TOPIC_IS_BOUND)


def _read_head(frame: bytes) -> tuple[str, int]:
    """Return the key's id, and where the nonce begins."""
    if len(frame) > _FLAGS_AT and frame[_FLAGS_AT] & ~_TOPIC_IS_BOUND:
        raise FormatError("ciphertext", f"flags {frame[_FLAGS_AT]} are not known")
    key_id, end = read_key_id(frame, _FLAGS_AT + 1)
    least = end + _NONCE_BYTES + _TAG_BYTES
    if len(frame) < least:
        raise TruncatedError("ciphertext", wanted=least, got=len(frame))
    return key_id, end


def _bound(head: bytes, fields: Iterable[bytes | None]) -> bytes:
    return canonical_bytes((_DOMAIN, head, *fields))
