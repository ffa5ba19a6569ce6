"""Signatures of records: who writes to a topic signs, and who reads it refuses what was changed or forged.

`Signing` does both, with HMAC-SHA256 or Ed25519, by the kind of its keys. `frames` says which bytes are signed.
A store has the signatures that a shard has seen, so that a record gets in once:

    NAME-seen    map entry below the record's key: the first 16 bytes of SHA-256 of the signature -> nothing

A signature made at `t` gets in while the clock shows `t - ahead_ms` to `t + window_ms`. So an entry lives for both and
one millisecond more; what comes later is too old. Where the clock is that of records, the store goes by the shard's
stream time, so the age of a late record is measured by stream time, too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa

from statestore.errors import FormatError, SignatureRefusedError
from statestore.errors.middleware import KeyUnusableError
from statestore.format.binary_columns import row_objects
from statestore.format.keys.entry_key import MAP_KEYS, map_entry_key
from statestore.format.records.header_bytes import parse_headers
from statestore.format.serde import Serdes
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, Interceptor, InterceptorContext
from statestore.middleware.application import CHANGING_HEADERS, options, value_of
from statestore.middleware.security.frames import NAMES_MAX, Pairs, SignatureHead, read_frame, signed_bytes
from statestore.middleware.security.keys import KeyedInterceptor, KeyProvider, SignatureKey
from statestore.stores.builder import PartStore
from statestore.stores.stores import Stores

__all__ = ["CHANGING_HEADERS", "SIGNATURE_HEADER", "Signing"]

SIGNATURE_HEADER: Final = "statestore-signature"
"""The header of a record's signature, as bytes."""

_FRAME_BYTES_MAX: Final = 16 << 10
_DIGEST_BYTES: Final = 16
_HELD_MOST: Final = 10_000
_CLOCKS: Final = {"system": "processing", "record": "event"}


class Signing(KeyedInterceptor):
    """Signs emitted records, and verifies that key, value and headers of ingested ones are as they were signed.

    It signs all headers in their order, so that none can be added, but for its own and those in `unsigned`. A signature
    names its key, so that keys can be rotated. In a query, a retried batch signs the same by the same key.

    Args:
        keys: the keys that verify; the active one signs.
        sign: whether to sign emitted records; if not, no active key is needed.
        verify: whether to verify ingested records; if not, they pass as they are.
        unsigned: the headers that are not signed, by default those that change on the way. A signature that leaves out
            others is refused.
        version_1_headers: the headers that a signature of version 1 must sign to be accepted; it protects no others.
            None accepts no such signature.
        bind_topic: whether to sign the topic, too. A record can't be mirrored to another topic then.
        required: whether a record without a signature is refused; if not, it passes.
        keep: whether the signature stays with an ingested record, so that it can be verified again.
        header: the name of the signature's header. Two chains that sign for different readers need two.
        window_ms: how old a signature may be, in milliseconds; None for any age.
        ahead_ms: how far clocks of signers may be ahead, in milliseconds; only with a window.
        clock: what measures the window: "system", the wall clock, or "record", the record's timestamp. The latter
            allows for records that are read late, but can be trusted only if brokers write it
            (`message.timestamp.type=LogAppendTime`).
        refuse_replays: whether to refuse a record whose signature was seen in the window, which a store remembers. With
            clock "record", the age of a record that is behind its shard's stream time is measured by stream time, so
            that what the store has forgotten is too old.
    """

    kind = "signing"
    _options = options(
        CLASS="keys!",
        BOOLEAN="sign verify bind.topic required keep refuse.replays",
        LIST="unsigned version.1.headers",
        STRING="header clock",
        LONG="window.ms ahead.ms",
    )

    def __init__(
        self,
        keys: KeyProvider,
        *,
        sign: bool = True,
        verify: bool = True,
        unsigned: Sequence[str] = CHANGING_HEADERS,
        version_1_headers: Sequence[str] | None = None,
        bind_topic: bool = False,
        required: bool = True,
        keep: bool = False,
        header: str = SIGNATURE_HEADER,
        window_ms: int | None = None,
        ahead_ms: int = 60_000,
        clock: str = "system",
        refuse_replays: bool = False,
    ) -> None:
        """Raise ValueError for impossible arguments, such as replays without a window; TypeError for text as names."""
        super().__init__(keys, emits=sign, ingests=verify, required=required)
        self._unsigned: Final = _header_names(unsigned, header)
        self._version_1_headers: Final = None if version_1_headers is None else _header_names(version_1_headers, header)
        self._bind_topic: Final = bind_topic
        self._keep: Final = keep
        self._header: Final = header
        if window_ms is None and refuse_replays:
            raise ValueError("refuse_replays needs window_ms: signatures are not kept for ever")
        if (window_ms is not None and window_ms < 1) or ahead_ms < 0:
            raise ValueError(f"window_ms must be 1 or more and ahead_ms 0 or more, got {window_ms} and {ahead_ms}")
        if clock not in _CLOCKS:
            raise ValueError(f"clock must be 'system' or 'record', not {clock!r}")
        self._window_ms: Final = window_ms
        self._ahead_ms: Final = ahead_ms
        self._clock: Final = clock
        self._refuse_replays: Final = refuse_replays and verify
        if keep or not verify:
            self.changes = (header,)
        self._serials: Iterator[int] | None = None
        self._seen: _SeenSignatures | None = None

    @property
    def name(self) -> str:
        """Its kind, and its header if that is not the usual one."""
        return self.kind if self._header == SIGNATURE_HEADER else f"{self.kind}-{self._header}"

    def stores(self) -> Sequence[PartStore]:
        """Return the store of signatures that were seen, if replays are refused."""
        if not self._refuse_replays or self._window_ms is None:
            return ()
        supplier = Stores.persistent_key_value_store(f"{self.name}-seen")
        builder = Stores.key_value_store_builder(supplier, Serdes.bytes(), Serdes.bytes())
        return (PartStore(builder.with_ttl(self._window_ms + self._ahead_ms + 1, _CLOCKS[self._clock]), MAP_KEYS),)

    def why_not_after(self, other: Interceptor) -> str | None:
        """Return why another one must not come before it: it goes by a header that is not signed."""
        if steering := sorted(
            set(self._unsigned).intersection({*other.goes_by, *other.marks}.difference(other.changes))
        ):
            return f"headers that steer it are not signed: take {steering} out of `unsigned`"
        return super().why_not_after(other)

    def why_not_before(self, other: Interceptor) -> str | None:
        """Return why another one must not come after it: it changes what was signed."""
        if changed := sorted(set(other.changes).difference(self._unsigned)):
            return (
                f"what comes in has other headers {changed} by then than those that were signed, and would be refused: "
                "put it before, or add them to `unsigned`"
            )
        return super().why_not_before(other)

    def why_not_sharded(self, shard_by: str, global_topics: Collection[str]) -> str | None:
        """Return why it can't refuse replays: another shard may get a record that is sent again."""
        if not self._refuse_replays:
            return None
        if shard_by != "key":
            return (
                "a record that is sent again to another partition would come to another shard, which has not seen it, "
                "and get in: shard by key, or leave refuse_replays out"
            )
        if global_topics and not self._bind_topic:
            return (
                f"a record that is sent again to {sorted(global_topics)}, which all shards read, would get in where it "
                "was not seen: sign topics, too (bind_topic=True)"
            )
        return None

    def init(self, context: InterceptorContext) -> None:
        """Take clock and store."""
        super().init(context)
        # Equal when a batch is retried, different in each shard.
        self._serials = count(context.shard << 32)
        self._seen = _SeenSignatures(self.name, context) if self._refuse_replays else None

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Sign a record, in place of an earlier signature. Raises KeyUnusableError without a key that signs."""
        if not self._emits:
            return (record,)
        frame = self._signed(record.topic, record.key, record.value, list(record.headers))
        record.headers.remove(self._header).add(self._header, frame)
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Sign records."""
        if not self._emits:
            return records
        frames = [self._signed(*row) for row in _rows(records)]
        return records.without_header(self._header).with_header(self._header, pa.array(frames, pa.binary()))

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Verify a record. Raises SignatureRefusedError and UnknownKeyIdError."""
        if not self._ingests:
            return (record,)
        frame = value_of(record.headers, self._header)
        row = (record.topic, record.key, record.value, list(record.headers), record.timestamp_ms)
        if self._is_good(frame, *row):
            self._note([(frame, *row)])
        if not self._keep:
            record.headers.remove(self._header)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Verify records."""
        if not self._ingests:
            return records
        frames, times_ms = records.header(self._header).to_pylist(), records.timestamp_ms.to_pylist()
        rows = [(frame, *row, time_ms) for frame, row, time_ms in zip(frames, _rows(records), times_ms, strict=True)]
        self._note([row for row in rows if self._is_good(*row)])
        return records if self._keep else records.without_header(self._header)

    def finish_batch(self) -> None:
        """Write the batch's signatures to their store."""
        super().finish_batch()
        if self._seen is not None:
            self._seen.flush()

    def _signed(self, topic: str, key: bytes | None, value: bytes | None, headers: Pairs) -> bytes:
        key_id, signer = self._keys.active(SignatureKey)  # type: ignore[type-abstract]
        if not signer.signs:
            raise KeyUnusableError(purpose="signing", problem=f"the active key {key_id!r} is public, and can't sign")
        if self._serials is None:
            self._serials = count(int.from_bytes(os.urandom(7), "big"))
        time_ms, serial = self._now_ms(), next(self._serials)
        head = SignatureHead(signer.algorithm, key_id, time_ms, serial, self._bind_topic, self._unsigned)
        data = head.to_bytes()
        return data + signer.sign(signed_bytes(head, data, topic, key, value, headers, own=self._header))

    def _is_good(
        self, frame: bytes | None, topic: str, key: bytes | None, value: bytes | None, headers: Pairs, timestamp_ms: int
    ) -> bool:
        """Check a signature; return whether there is one. Raises SignatureRefusedError and UnknownKeyIdError."""
        if frame is None:
            if self._required:
                raise SignatureRefusedError(reason=f"there is no header {self._header!r}")
            return False
        if len(frame) > _FRAME_BYTES_MAX:
            raise SignatureRefusedError(reason=f"it has {len(frame)} bytes, more than {_FRAME_BYTES_MAX}")
        try:
            head, end = read_frame(frame)
        except FormatError as error:
            raise SignatureRefusedError(reason=f"malformed: {error}") from None
        self._check_signs_enough(head)
        verifier = self._keys.key(head.key_id, SignatureKey)  # type: ignore[type-abstract]
        signed = signed_bytes(head, frame[:end], topic, key, value, headers, own=self._header)
        if head.algorithm != verifier.algorithm or not verifier.verifies(signed, frame[end:]):
            raise SignatureRefusedError(reason=f"it is not that of this record by key {head.key_id!r}")
        self._check_time(head.time_ms, key, timestamp_ms)
        return True

    def _check_signs_enough(self, head: SignatureHead) -> None:
        if self._bind_topic and not head.topic_is_signed:
            raise SignatureRefusedError(reason="the topic is not signed")
        if head.signs_all_but_names:
            missing = [name for name in head.names if name not in self._unsigned]
        elif self._version_1_headers is None:
            raise SignatureRefusedError(
                reason="it is of version 1, which does not sign all headers (version_1_headers)"
            )
        else:
            missing = [name for name in self._version_1_headers if name not in head.names]
        if missing:
            raise SignatureRefusedError(reason=f"these headers have to be signed, and are not: {missing}")

    def _check_time(self, time_ms: int, key: bytes | None, timestamp_ms: int) -> None:
        if self._window_ms is None:
            return
        now_ms = latest_ms = timestamp_ms if self._clock == "record" else self._now_ms()
        if self._seen is not None and self._clock == "record":
            latest_ms = self._seen.latest_ms(key, now_ms)
        if time_ms < latest_ms - self._window_ms:
            reason = f"made {latest_ms - time_ms} ms ago, and {self._window_ms} ms are allowed"
            raise SignatureRefusedError(reason=reason)
        if time_ms > now_ms + self._ahead_ms:
            raise SignatureRefusedError(reason=f"made {time_ms - now_ms} ms in the future: are clocks set?")

    def _note(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Note the signatures of rows. Raises SignatureRefusedError if one was seen before, and notes none."""
        if not self._refuse_replays or not rows:
            return
        if self._seen is None:
            raise RuntimeError("refuse_replays needs a store: give the chain to a query or a test driver")
        self._seen.add([(key, frame, timestamp_ms) for frame, _, key, _, _, timestamp_ms in rows])


def _header_names(names: Sequence[str], own: str) -> tuple[str, ...]:
    """Return names of headers, each once. Raises ValueError for impossible or too many names, TypeError for a text."""
    if isinstance(names, str):
        raise TypeError("headers are names in a list, not one text")
    made = tuple(dict.fromkeys(names))
    if len(made) > NAMES_MAX:
        raise ValueError(f"a signature names at most {NAMES_MAX} headers, not {len(made)}")
    for name in made:
        if not name or len(name.encode()) > 255 or name == own:
            raise ValueError(
                f"header {name[:80]!r} can't be named: it is the signature's own, empty, or longer than 255 bytes"
            )
    return made


def _rows(records: RecordColumns) -> Iterator[tuple[Any, Any, Any, Pairs]]:
    columns = (records.topic, records.key, records.value, records.headers)
    for topic, key, value, header_bytes in zip(*map(row_objects, columns), strict=True):
        yield topic, key, value, parse_headers(header_bytes)


class _SeenSignatures:
    """The signatures that a shard has seen, up to and in one micro-batch."""

    def __init__(self, name: str, context: InterceptorContext) -> None:
        self._store: Final[Any] = context.state_store(f"{name}-seen")
        self._context: Final = context
        self._held: Final[dict[bytes, int]] = {}
        """Entries that are not in the store yet, each with the later of its record's time and the shard's."""

    def latest_ms(self, key: bytes | None, timestamp_ms: int) -> int:
        """Return the later of a record's time and its shard's, by which the record's age is measured."""
        return max(timestamp_ms, self._context.stream_time_ms_of(key))

    def add(self, signed: Sequence[tuple[bytes | None, bytes, int]]) -> None:
        """Note keys, signatures and times of records. Raises SignatureRefusedError if one is known, and notes none."""
        found = {}
        for key, frame, time_ms in signed:
            place = map_entry_key(key or b"", hashlib.sha256(frame).digest()[:_DIGEST_BYTES])
            found[place] = max(0, self.latest_ms(key, time_ms))
        is_new = len(found) == len(signed) and self._held.keys().isdisjoint(found)
        if not is_new or any(self._store.get(place) is not None for place in found):
            raise SignatureRefusedError(reason="it was seen before: the record is sent again")
        self._held.update(found)
        if len(self._held) >= _HELD_MOST:
            self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        places, times_ms = pa.array(self._held.keys(), pa.binary()), pa.array(self._held.values(), pa.int64())
        nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(places))
        zeros = pa.repeat(0, len(places))
        topics = pa.repeat(pa.scalar("", pa.string()), len(places))
        columns = zip((topics, zeros, zeros, times_ms, zeros, zeros), ORIGIN.types, strict=True)
        origin = pa.record_batch([column.cast(type_) for column, type_ in columns], schema=ORIGIN)
        self._store.put_many(RecordColumns.adopt(places, nothing, times_ms, nothing, origin))
        self._held.clear()
