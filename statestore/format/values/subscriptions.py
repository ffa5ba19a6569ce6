"""What two tables say to each other in a foreign-key join: subscriptions, and the responses to them.

    subscription := version:u8 instruction:u8 [ hash:u8[16] ] key:u8[..] [ partition:i32 ]
    response     := 00 [ hash:u8[16] ] value:u8[..]
    place        := size:i32 foreign_key:u8[size] key:u8[..]          the key of a subscription in its store

All numbers are big-endian. `hash` is that of the left value, murmur3 of 128 bits; without one, as the left value was
deleted, the first byte has its highest bit set. A response without bytes for the value says that there is none.
`partition`, only in version 1, is that of the left record, to which Kafka sends the responses. Here version 0 is
written, as Kafka Streams does while it is upgraded: responses to it go by key, whatever the count of partitions.
Source: Kafka Streams' SubscriptionWrapperSerde, SubscriptionResponseWrapperSerde, CombinedKeySchema and Murmur3.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError

_HASH_SIZE: Final = 16
_PARTITION_SIZE: Final = 4
_NO_HASH: Final = 0x80
_MOST: Final = (1 << 64) - 1
_SEED: Final = 104729
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")
_HASH: Final = struct.Struct(">QQ")


class Instruction(IntEnum):
    """What the right side is to do with a subscription, and when to respond at once. The numbers are persisted."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    """Also if there is no right value."""
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple):
    """A left key that wants to know about a right one. A hash of None is that of a deleted value."""

    instruction: Instruction
    key: bytes
    hash: bytes | None


class Response(NamedTuple):
    """What the right side says to a left key, for the left value that has this hash."""

    hash: bytes | None
    value: Any
    """The right value, here as bytes; None if there is none."""


def encode_subscription(subscription: Subscription) -> bytes:
    """Return its bytes, in version 0."""
    instruction, key, value_hash = subscription
    return bytes((_NO_HASH if value_hash is None else 0, instruction)) + (value_hash or b"") + key


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription, of version 0 or 1. Raises FormatError for bytes of another layout."""
    version, value_hash, rest = _after_hash("subscription", data, before_hash=2)
    if version > 1:
        raise FormatError("subscription", f"it has version {version}, not 0 or 1")
    if version == 1:
        if len(rest) < _PARTITION_SIZE:
            raise TruncatedError("partition of a subscription", wanted=_PARTITION_SIZE, got=len(rest))
        rest = rest[:-_PARTITION_SIZE]
    try:
        return Subscription(Instruction(data[1]), rest, value_hash)
    except ValueError as cause:
        raise FormatError("subscription", f"it has the instruction {data[1]}, not 0 to 3") from cause


def encode_response(response: Response) -> bytes:
    """Return its bytes."""
    value_hash, value = response
    return bytes((_NO_HASH if value_hash is None else 0,)) + (value_hash or b"") + (value or b"")


def decode_response(data: bytes) -> Response:
    """Return the response. Raises FormatError for bytes of another layout."""
    version, value_hash, rest = _after_hash("response to a subscription", data, before_hash=1)
    if version:
        raise FormatError("response to a subscription", f"it has version {version}, not 0")
    return Response(value_hash, rest or None)


def hash128(data: bytes) -> bytes:
    """Return murmur3 of 128 bits, with Kafka's seed."""
    most, c1, c2 = _MOST, _C1, _C2
    h1 = h2 = _SEED
    whole = len(data) // _BLOCK.size * _BLOCK.size
    # Rotations are written out: to call a function for each takes twice as long.
    for k1, k2 in _BLOCK.iter_unpack(memoryview(data)[:whole]):
        k1 = k1 * c1 & most
        h1 ^= (k1 << 31 | k1 >> 33) * c2 & most
        h1 = ((h1 << 27 & most | h1 >> 37) + h2) * 5 + 0x52DCE729 & most
        k2 = k2 * c2 & most
        h2 ^= (k2 << 33 | k2 >> 31) * c1 & most
        h2 = ((h2 << 31 & most | h2 >> 33) + h1) * 5 + 0x38495AB5 & most
    k1, k2 = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    k1, k2 = k1 * c1 & most, k2 * c2 & most
    h1 ^= (k1 << 31 | k1 >> 33) * c2 & most ^ len(data)
    h2 ^= (k2 << 33 | k2 >> 31) * c1 & most ^ len(data)
    h1 = h1 + h2 & most
    h1, h2 = _mixed(h1), _mixed(h1 + h2 & most)
    h1 = h1 + h2 & most
    return _HASH.pack(h1, h1 + h2 & most)


def _after_hash(what: str, data: bytes, *, before_hash: int) -> tuple[int, bytes | None, bytes]:
    """Return version, hash, and the bytes behind it."""
    end = before_hash + (0 if data[:1] and data[0] & _NO_HASH else _HASH_SIZE)
    if len(data) < end:
        raise TruncatedError(what, wanted=end, got=len(data))
    return data[0] & ~_NO_HASH, data[before_hash:end] or None, data[end:]


def _mixed(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MOST
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MOST
    return number ^ number >> 33
