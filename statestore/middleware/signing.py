"""Signatures of records: who writes to a topic signs, and who reads it refuses what was changed or forged.

`Signing` does both, HMAC-SHA256 or Ed25519, by the kind of its keys. `signature_frame` has what is signed, to the byte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from statestore.connect.config import ConfigDef, ConfigType, Property
from statestore.errors import FormatError, KeyUnusableError, SignatureRefusedError
from statestore.format.binary_columns import row_objects
from statestore.format.entry_key import MAP_KEYS, map_entry_key
from statestore.format.serde import Serdes
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.middleware.clock import system_time_ms
from statestore.middleware.interceptor import EmittedRecord, IngestedRecord, InterceptorContext
from statestore.middleware.key_source import KeyedInterceptor, KeySource
from statestore.middleware.keys import KeyProvider, SignatureKey
from statestore.middleware.properties import made_of
from statestore.middleware.signature_frame import NAMES_MAX, SignatureHead, read_frame, signed_bytes
from statestore.stores.part_store import PartStore
from statestore.stores.stores import Stores

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SIGNATURE_HEADER", "Signing"]

SIGNATURE_HEADER: Final = "statestore-signature"
"""The header that has a record's signature, as bytes."""

_FRAME_BYTES_MAX: Final = 16 << 10
_DIGEST_BYTES: Final = 16
_HEADERS_IN_ONE: Final = {"header-ids": "the headers that it is to sign are in one header by then, and have no names"}
_CLOCKS: Final = {"system": "processing", "record": "event"}

_PROPERTIES: Final = ConfigDef(
    Property("keys", ConfigType.CLASS, doc="module:function, which returns the Keyring"),
    Property("sign", ConfigType.BOOLEAN, None),
    Property("verify", ConfigType.BOOLEAN, None),
    Property("headers", ConfigType.LIST, None),
    Property("bind.topic", ConfigType.BOOLEAN, None),
    Property("required", ConfigType.BOOLEAN, None),
    Property("keep", ConfigType.BOOLEAN, None),
    Property("header", ConfigType.STRING, None),
    Property("window.ms", ConfigType.LONG, None),
    Property("ahead.ms", ConfigType.LONG, None),
    Property("clock", ConfigType.STRING, None),
    Property("refuse.replays", ConfigType.BOOLEAN, None),
)


class Signing(KeyedInterceptor):
    """Signs what is emitted, and verifies what is ingested: key, value and chosen headers are as they were signed.

    A signature names its key, so that keys can be changed. In a query, a batch that is retried signs the same.

    Args:
        keys: those to verify with; the active one signs.
        sign: whether what is emitted is signed; who only verifies needs no active key.
        verify: whether what is ingested is verified; else it passes as it is.
        headers: names of those that have to be signed, too: all of a name, in their order, or that there is none.
        bind_topic: whether the topic is signed. A record can't be mirrored to another one then.
        required: whether a record without a signature is refused; else it passes.
        keep: whether the signature stays with a record that was ingested, so that it can be verified again.
        header: the name of its header: two chains that sign for others than each other need two.
        window_ms: how long ago a record may have been signed, in milliseconds; None is however long.
        ahead_ms: how far clocks of signers may be ahead, in milliseconds, where there is a window.
        clock: what the window is measured from: "system", the wall clock, or "record", the record's timestamp, which
            is only worth something if brokers write it (`message.timestamp.type=LogAppendTime`), and then allows for
            records that are read late.
        refuse_replays: whether a record whose signature was seen in the window is refused, by a store of those seen.
    """

    kind = "signing"

    def __init__(
        self,
        keys: KeyProvider,
        *,
        sign: bool = True,
        verify: bool = True,
        headers: Sequence[str] = (),
        bind_topic: bool = False,
        required: bool = True,
        keep: bool = False,
        header: str = SIGNATURE_HEADER,
        window_ms: int | None = None,
        ahead_ms: int = 60_000,
        clock: str = "system",
        refuse_replays: bool = False,
    ) -> None:
        """Raise ValueError for arguments that can't be, such as replays without a window, and TypeError."""
        self._keys = KeySource(keys, "signing")
        self._sign: Final = sign
        self._verify: Final = verify
        self._names: Final = _signed_names(headers, header)
        self._bind_topic: Final = bind_topic
        self._required: Final = required
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
        if self._names:
            self.not_after = _HEADERS_IN_ONE  # type: ignore[misc]  # without names, it does not look at headers
        self._context: InterceptorContext | None = None
        self._serials: Iterator[int] | None = None
        self._seen: Any = None

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Self:
        """Make one of the properties `statestore.signing.*`: the arguments, with dots for underscores.

        `keys` is module:function, which returns the Keyring. Raises ConfigException.
        """
        return made_of(cls, cls.kind, _PROPERTIES, config)

    @property
    def name(self) -> str:
        """Its kind, and its header if that is not the usual one."""
        return self.kind if self._header == SIGNATURE_HEADER else f"{self.kind}-{self._header}"

    def stores(self) -> Sequence[PartStore]:
        """Return the store of signatures that were seen, if replays are refused."""
        if not self._refuse_replays:
            return ()
        assert self._window_ms is not None
        builder = Stores.key_value_store_builder(
            Stores.persistent_key_value_store(f"{self.name}-seen"), Serdes.bytes(), Serdes.bytes()
        )
        kept_ms = self._window_ms + self._ahead_ms
        return (PartStore(builder.with_ttl(kept_ms, _CLOCKS[self._clock]), MAP_KEYS),)

    def init(self, context: InterceptorContext) -> None:
        """Take clock and store."""
        super().init(context)
        self._context = context
        # The same for the same records when a batch is retried, and different in each shard.
        self._serials = count(context.shard << 32)
        if self._refuse_replays:
            self._seen = context.state_store(f"{self.name}-seen")

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Sign a record, instead of who has signed it before. Raises KeyUnusableError without a key to sign with."""
        if not self._sign:
            return (record,)
        frame = self._signed(record.topic, record.key, record.value, record.headers)
        record.headers.remove(self._header).add(self._header, frame)
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Sign records."""
        if not self._sign:
            return records
        frames = [self._signed(*row) for row in _rows(records)]
        return records.without_header(self._header).with_header(self._header, pa.array(frames, pa.binary()))

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Verify a record. Raises SignatureRefusedError and UnknownKeyIdError."""
        if not self._verify:
            return (record,)
        found = record.headers.last_header(self._header)
        frame = None if found is None else found.value
        self._check(frame, record.topic, record.key, record.value, record.headers, record.timestamp_ms)
        if self._refuse_replays and frame is not None:
            self._note([(record.key, frame)])
        if found is not None and not self._keep:
            record.headers.remove(self._header)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Verify records."""
        if not self._verify:
            return records
        frames = records.header(self._header).to_pylist()
        for frame, row, timestamp_ms in zip(frames, _rows(records), records.timestamp_ms.to_pylist(), strict=True):
            self._check(frame, *row, timestamp_ms)
        if self._refuse_replays:
            pairs = zip(row_objects(records.key), frames, strict=True)
            self._note([(key, frame) for key, frame in pairs if frame is not None])
        return records if self._keep else records.without_header(self._header)

    def _signed(self, topic: str | None, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
        key_id, signer = self._keys.active(SignatureKey)  # type: ignore[type-abstract]
        if not signer.signs:
            raise KeyUnusableError(purpose="signing", problem=f"the active key {key_id!r} is public, and can't sign")
        if self._serials is None:
            self._serials = count(int.from_bytes(os.urandom(7), "big"))
        time_ms, serial = system_time_ms(self._context), next(self._serials)
        head = SignatureHead(signer.algorithm, key_id, time_ms, serial, self._bind_topic, self._names).to_bytes()
        topic = topic if self._bind_topic else None
        return head + signer.sign(signed_bytes(head, self._names, topic, key, value, headers))

    def _check(
        self,
        frame: bytes | None,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> None:
        if frame is None:
            if self._required:
                raise SignatureRefusedError(reason=f"there is no header {self._header!r}")
            return
        if len(frame) > _FRAME_BYTES_MAX:
            raise SignatureRefusedError(reason=f"it has {len(frame)} bytes, more than {_FRAME_BYTES_MAX}")
        try:
            head, end = read_frame(frame)
        except FormatError as error:
            raise SignatureRefusedError(reason=f"malformed: {error}") from None
        if self._bind_topic and not head.topic_is_signed:
            raise SignatureRefusedError(reason="the topic is not signed")
        if missing := [name for name in self._names if name not in head.names]:
            raise SignatureRefusedError(reason=f"these headers have to be signed, and are not: {missing}")
        verifier = self._keys.key(head.key_id, SignatureKey)  # type: ignore[type-abstract]
        signed_topic = topic if head.topic_is_signed else None
        signed = signed_bytes(frame[:end], head.names, signed_topic, key, value, headers)
        if head.algorithm != verifier.algorithm or not verifier.verifies(signed, frame[end:]):
            raise SignatureRefusedError(reason=f"it is not that of this record by key {head.key_id!r}")
        self._check_time(head.time_ms, timestamp_ms)

    def _check_time(self, time_ms: int, timestamp_ms: int) -> None:
        if self._window_ms is None:
            return
        now_ms = timestamp_ms if self._clock == "record" else system_time_ms(self._context)
        if time_ms < now_ms - self._window_ms:
            raise SignatureRefusedError(reason=f"made {now_ms - time_ms} ms ago, and {self._window_ms} ms are allowed")
        if time_ms > now_ms + self._ahead_ms:
            raise SignatureRefusedError(reason=f"made {time_ms - now_ms} ms in the future: are clocks set?")

    def _note(self, frames: Sequence[tuple[bytes | None, bytes]]) -> None:
        """Take signatures as seen. Raises SignatureRefusedError, and takes none, if one was seen before."""
        if self._seen is None:
            raise RuntimeError("to refuse replays it needs the context that a query or a test driver gives it")
        places = {map_entry_key(key or b"", hashlib.sha256(frame).digest()[:_DIGEST_BYTES]) for key, frame in frames}
        if len(places) < len(frames) or any(self._seen.get(place) is not None for place in places):
            raise SignatureRefusedError(reason="it was seen before: the record is sent again")
        for place in sorted(places):
            self._seen.put(place, b"")

    def __repr__(self) -> str:
        return f"Signing({self._keys!r}, headers={list(self._names)})"


def _signed_names(headers: Sequence[str], own: str) -> tuple[str, ...]:
    if isinstance(headers, str):
        raise TypeError("headers are names in a list, not one text")
    names = tuple(dict.fromkeys(headers))
    if len(names) > NAMES_MAX:
        raise ValueError(f"at most {NAMES_MAX} headers can be signed, not {len(names)}")
    for name in names:
        if not name or len(name.encode()) > 255 or name == own:
            raise ValueError(
                f"header {name[:80]!r} can't be signed: it is the signature, empty, or longer than 255 bytes"
            )
    return names


def _rows(records: RecordColumns) -> Iterator[tuple[str, bytes | None, bytes | None, Headers]]:
    """Yield topic, key, value and headers of each record, which are parsed by who looks at them."""
    columns = (records.topic, records.key, records.value, records.headers)
    for topic, key, value, headers in zip(*map(row_objects, columns), strict=True):
        yield topic, key, value, Headers.from_bytes(headers)
