"""The signatures that a shard has seen, so that their records get in once.

    NAME-seen    map entry below the record's key: the first 16 bytes of SHA-256 of the signature -> nothing

A signature of the time `t` gets in with records from `t - ahead_ms` to `t + window_ms`, by whichever clock. So an entry
is there until that clock, which counts its own record, has gone on by both and one more: what comes then is too old. By
the time of records, the clock of what gets in must not be behind that of the store, which is the shard's stream time: a
record that is late is as old as it is by stream time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from statestore.errors import SignatureRefusedError
from statestore.format.keys.entry_key import MAP_KEYS, map_entry_key
from statestore.format.serde import Serdes
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.interception.interceptor import InterceptorContext
from statestore.stores.builder import PartStore
from statestore.stores.stores import Stores

_DIGEST_BYTES: Final = 16
_HELD_MOST: Final = 10_000
_CLOCKS: Final = {"system": "processing", "record": "event"}


def seen_store(name: str, clock: str, window_ms: int, ahead_ms: int) -> PartStore:
    """Return the store of the signatures that an interceptor has seen; `clock` is "system" or "record"."""
    supplier = Stores.persistent_key_value_store(_store_name(name))
    builder = Stores.key_value_store_builder(supplier, Serdes.bytes(), Serdes.bytes())
    return PartStore(builder.with_ttl(window_ms + ahead_ms + 1, _CLOCKS[clock]), MAP_KEYS)


class SeenSignatures:
    """The signatures that a shard has seen, in one micro-batch of it."""

    def __init__(self, name: str, context: InterceptorContext) -> None:
        self._store: Final[Any] = context.state_store(_store_name(name))
        self._context: Final = context
        self._held: Final[dict[bytes, int]] = {}
        """Entries that are not in the store yet, each with the later of its record's time and the shard's."""

    def latest_ms(self, key: bytes | None, timestamp_ms: int) -> int:
        """Return a record's time, or its shard's if that is later: the window is measured from there."""
        return max(timestamp_ms, self._context.stream_time_ms_of(key))

    def add(self, signed: Sequence[tuple[bytes | None, bytes, int]]) -> None:
        """Take keys and signatures, with the timestamps of their records, as seen.

        Raises SignatureRefusedError, and takes none, if one of them was seen before.
        """
        found = {
            map_entry_key(key or b"", hashlib.sha256(frame).digest()[:_DIGEST_BYTES]): max(
                0, self.latest_ms(key, time_ms)
            )
            for key, frame, time_ms in signed
        }
        is_new = len(found) == len(signed) and self._held.keys().isdisjoint(found)
        if not is_new or any(self._store.get(place) is not None for place in found):
            raise SignatureRefusedError(reason="it was seen before: the record is sent again")
        self._held.update(found)
        if len(self._held) >= _HELD_MOST:
            self.flush()

    def flush(self) -> None:
        """Write to the store what is not there yet."""
        if not self._held:
            return
        places, times_ms = pa.array(self._held.keys(), pa.binary()), pa.array(self._held.values(), pa.int64())
        nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(places))
        zeros = pa.repeat(0, len(places))
        topics = pa.repeat(pa.scalar("", pa.string()), len(places))
        columns = zip((topics, zeros, zeros, times_ms, zeros), ORIGIN.types, strict=True)
        origin = pa.record_batch([column.cast(type_) for column, type_ in columns], schema=ORIGIN)
        self._store.put_many(RecordColumns.adopt(places, nothing, times_ms, nothing, origin))
        self._held.clear()


def _store_name(name: str) -> str:
    return f"{name}-seen"
