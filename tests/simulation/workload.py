"""What the simulated query does: a few stores of every kind, small retentions, and batches drawn from a seed.

What is put depends on what is there, so a batch that was lost or applied twice, or a store that was restored wrong,
shows in all that follows.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from statestore import Headers, Serdes, StoreBuilder, Stores, ValueTimestampHeaders, Windowed
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.kinds.segments import Segments, segment_of
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.shard_batch import ShardedState

if TYPE_CHECKING:
    from tests.simulation.rescaling import Rescaling
    from tests.simulation.spark import Attempt

BATCH_MS = 25
"""From batch to batch."""
RETENTION_MS = 40
SEGMENT_MS = 10
KEYS = (b"a", b"b", b"c")
KEYS_BY_HASH = tuple(bytes([letter]) for letter in range(ord("a"), ord("i")))
"""Of queries that place records by their key, as one must whose state is rescaled."""

Pairs = dict[bytes, bytes]
Content = Mapping[str, Pairs]


class Input(NamedTuple):
    """One record of a batch."""

    store: str
    key: bytes
    value: int | None
    time_ms: int


def place(key: bytes, shards: int) -> int:
    """Return the shard of a key: Kafka's default partitioner, murmur2 of the key. Source: Utils.murmur2."""
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return (hashed ^ hashed >> 15 & 0xFFFFFFFF) % (1 << 31) % shards


def _builders() -> dict[str, StoreBuilder[Any]]:
    return {
        "totals": Stores.timestamped_key_value_store_with_headers_builder(
            Stores.persistent_timestamped_key_value_store_with_headers("totals"), Serdes.bytes(), Serdes.int64()
        ),
        "prices": Stores.versioned_key_value_store_with_headers_builder(
            Stores.persistent_versioned_key_value_store_with_headers("prices", RETENTION_MS, SEGMENT_MS),
            Serdes.bytes(),
            Serdes.int64(),
        ),
        "quotes": Stores.versioned_key_value_store_builder(
            Stores.in_memory_versioned_key_value_store("quotes", RETENTION_MS, SEGMENT_MS),
            Serdes.bytes(),
            Serdes.int64(),
        ),
        "windows": Stores.timestamped_window_store_with_headers_builder(
            Stores.persistent_timestamped_window_store_with_headers(
                "windows", RETENTION_MS, 5, segment_interval=SEGMENT_MS
            ),
            Serdes.bytes(),
            Serdes.int64(),
        ),
        "sessions": Stores.session_store_builder(
            Stores.persistent_session_store("sessions", RETENTION_MS, SEGMENT_MS), Serdes.bytes(), Serdes.int64()
        ),
    }


BUILDERS = _builders()
SPECS: dict[str, StoreSpec] = {name: builder.spec for name, builder in BUILDERS.items()}


class Held(NamedTuple):
    """What a shard holds when a batch begins."""

    stores: Mapping[str, Any]
    """Their bytes."""
    stream_time_ms: int
    times_ms: Mapping[str, int]
    """The stream times of stores that have one."""
    changelogs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Workload:
    """The stores of a plan."""

    seed: int
    stores: tuple[str, ...]
    by_hash: bool = False
    keys: int = 3
    indexed: bool = False
    """Whether stores have an index of their entries' headers."""

    @property
    def always_writes(self) -> bool:
        """Whether each record changes something."""
        return True

    @property
    def specs(self) -> tuple[StoreSpec, ...]:
        specs = [SPECS[name] for name in sorted(self.stores)]
        if not self.indexed:
            return tuple(specs)
        return tuple(replace(spec, indexed_headers=("trace",)) if spec.format.has_headers else spec for spec in specs)

    @property
    def in_memory(self) -> frozenset[str]:
        return frozenset(name for name in self.stores if not BUILDERS[name].persistent)

    def records(self, batch: str, shard: int, shards: int) -> list[Input]:
        """Return the input of a batch in a shard of so many, which may be none."""
        keys = tuple(key for key in KEYS_BY_HASH if place(key, shards) == shard)
        keys = keys if self.by_hash else KEYS[: self.keys]
        if not keys:
            return []
        rng = random.Random(f"{self.seed} {batch} {shard}")
        if rng.random() < 0.1:
            return []
        now_ms = BATCH_MS * batch_number(batch) + rng.randrange(30)
        return [
            Input(
                rng.choice(self.stores),
                rng.choice(keys),
                None if rng.random() < 0.2 else rng.randrange(1000),
                max(0, now_ms + rng.choice((0, 0, -5, -20, -38, -45, 10, 25, 50))),
            )
            for _ in range(rng.choice((1, 2, 3, 5, 8)))
        ]

    def do(self, attempt: Attempt, state: ShardedState) -> tuple[CommitPointer, Any]:
        """Do what an attempt does, with its state; return the pointer that it comes to, and what it puts out."""
        pointer = attempt.pointer
        with state.open(pointer) as batch:
            inner = {name: store.bytes for name, store in batch.stores.items()}
            changelogs = {name: store.changelog for name, store in batch.stores.items()}
            held = Held(inner, pointer.stream_time_ms, pointer.store_times_ms, changelogs)
            place = pointer.shard, attempt.site.shards
            end, outputs = self.run(held, attempt.batch, place, attempt.variant, attempt.process.memory)
            return batch.commit(end).pointer, outputs

    def reference(self, shard: int, shards: int) -> Reference:
        """Return what a shard of so many must hold to begin with."""
        return Reference(self, shard, shards)

    def after(self, before: Reference, attempt: Attempt) -> Reference:
        """Return what a shard must hold after an attempt."""
        return before.after(attempt.batch, attempt.variant)

    @property
    def nodes(self) -> tuple[dict[str, Any], ...]:
        """The nodes of the query."""
        return {"name": "source", "type": "source"}, {"name": "p", "type": "processor", "parents": ["source"]}

    def adopted(self, pointer: CommitPointer, shards: int, found: Mapping[str, Mapping[bytes, Any]]) -> Reference:
        """Return what a shard that a tool has made begins with, which was found in it."""
        chain = ("rescaled",) * pointer.version
        return Reference(self, pointer.shard, shards, chain, found, pointer.store_times_ms, pointer.stream_time_ms)

    def rescaled_differences(
        self, tool: Rescaling, shard: int, found: Content, times_ms: Mapping[str, int]
    ) -> Iterator[str]:
        """Yield in words what is wrong with the content of a shard that a tool has made."""
        return tool.differences(shard, found, times_ms)

    def rescaled_entries(self, tool: Rescaling, name: str, told: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many entries of a store each shard must have that a tool has made."""
        if SPECS[name].kind is StoreKind.VERSIONED:
            return told
        return tuple(tool.entries(name, shard) for shard in range(tool.shards))

    def shown(self, content: Content, times_ms: Mapping[str, int]) -> Mapping[str, Mapping[bytes, Any]]:
        """Return what is compared of the bytes of stores."""
        return live(content, times_ms)

    def run(
        self, held: Held, batch: str, place: tuple[int, int], attempt: str = "", memory: dict[str, Any] | None = None
    ) -> tuple[BatchEnd, Any]:
        """Do what a batch does to a shard of so many, `place`, and return what it leaves, and what it puts out.

        `attempt` is who does it, if each is to make something else of it; `memory` what its process keeps.
        """
        context = TaskRecordContext(held.stream_time_ms, 0)
        stores = build(held.stores, held.times_ms, context, held.changelogs)
        self.process(stores, context, self.records(batch, *place), attempt)
        return BatchEnd(stream_time_ms=context.stream_time_ms, store_times_ms=flush_stores(stores)), None

    def problem(self, shard: int, shards: int, history: Sequence[tuple[str, Any]]) -> str | None:
        """Return what is wrong with what batches have put out: nothing, where they put out nothing."""
        return None

    def process(
        self, stores: Mapping[str, Any], context: TaskRecordContext, records: list[Input], attempt: str = ""
    ) -> None:
        """Put a batch into the stores; `attempt` is who does it, if each is to make something else of it."""
        added = zlib.crc32(attempt.encode()) % 1000
        for name, key, drawn, time_ms in records:
            value = None if drawn is None else drawn + added
            context.timestamp_ms = time_ms
            context.stream_time_ms = max(context.stream_time_ms, time_ms)
            context.headers = Headers([("t", b"%d" % time_ms)])
            _PUTS[name](stores[name], key, value, time_ms)


def batch_number(batch: str) -> int:
    """Return the number of a batch in its query, which its name ends with."""
    return int(batch.rpartition(":")[2])


def _put_total(store: Any, key: bytes, value: int | None, time_ms: int) -> None:
    before = store.get(key)
    known = 0 if before is None else before.value
    put = None if value is None else ValueTimestampHeaders((known * 31 + value) % 2**31, time_ms, _trace(time_ms))
    store.put(key, put)


def _put_price(store: Any, key: bytes, value: int | None, time_ms: int) -> None:
    store.put(key, value, time_ms, _trace(time_ms))


def _put_quote(store: Any, key: bytes, value: int | None, time_ms: int) -> None:
    store.put(key, value, time_ms)


def _put_window(store: Any, key: bytes, value: int | None, time_ms: int) -> None:
    start_ms = time_ms // 5 * 5
    put = None if value is None else ValueTimestampHeaders(value, time_ms, _trace(time_ms))
    store.put(key, put, start_ms)


def _put_session(store: Any, key: bytes, value: int | None, time_ms: int) -> None:
    store.put(Windowed(key, time_ms, time_ms + 4), value)


TRACES = (b"0", b"1", b"2")


def _trace(time_ms: int) -> Headers:
    return Headers([("trace", TRACES[time_ms % len(TRACES)])])


_PUTS = {
    "totals": _put_total,
    "prices": _put_price,
    "quotes": _put_quote,
    "windows": _put_window,
    "sessions": _put_session,
}


def build(
    inner: Mapping[str, Any], times_ms: Mapping[str, int], context: Any, changelogs: Any = None
) -> dict[str, Any]:
    """Return typed stores on bytes."""
    return {
        name: BUILDERS[name].build(
            store,
            changelog=None if changelogs is None else changelogs[name],
            context=context,
            stream_time_ms=times_ms.get(name, -1),
        )
        for name, store in inner.items()
    }


@dataclass
class Reference:
    """What a shard must hold after a chain of batches: they were put into clean stores, and nothing failed."""

    workload: Workload
    shard: int
    shards: int = 1
    chain: tuple[str, ...] = ()
    """The batches, of those that changed anything."""
    content: dict[str, Pairs] = field(default_factory=dict)
    times_ms: dict[str, int] = field(default_factory=dict)
    stream_time_ms: int = -1
    _next: dict[tuple[str, str], Reference] = field(default_factory=dict)

    def after(self, batch: str, attempt: str = "") -> Reference:
        """Return what must be there after one more batch, as `attempt` does it."""
        known = self._next.get((batch, attempt))
        if known is not None:
            return known
        database = MemoryDatabase(self.workload.stores)
        for name, pairs in self.content.items():
            database.family(name).write(pairs.items())
        inner = {name: database.family(name) for name in self.workload.stores}
        place = self.shard, self.shards
        end, _ = self.workload.run(Held(inner, self.stream_time_ms, self.times_ms), batch, place, attempt)
        times_ms = {**self.times_ms, **end.store_times_ms}
        content = {name: dict(store.range(None, None)) for name, store in inner.items()}
        content = live(content, times_ms)
        made = replace(
            self,
            chain=(*self.chain, batch),
            content=content,
            times_ms=times_ms,
            stream_time_ms=end.stream_time_ms,
            _next={},
        )
        self._next[batch, attempt] = made
        return made


def live(content: Mapping[str, Pairs], times_ms: Mapping[str, int]) -> dict[str, Pairs]:
    """Return what of the bytes of stores has not expired: when the rest goes is nobody's business."""
    found = {}
    for name, pairs in content.items():
        spec = SPECS[name]
        if spec.kind.is_segmented:
            first = Segments(_NOTHING, *spec.retention, times_ms.get(name, -1)).first_live
            found[name] = {
                key: value for key, value in pairs.items() if (segment := segment_of(key)) < 0 or segment >= first
            }
        else:
            found[name] = dict(pairs)
    return found


_NOTHING = MemoryDatabase(["nothing"]).family("nothing")


def differences(expected: Mapping[str, Mapping[bytes, Any]], found: Mapping[str, Mapping[bytes, Any]]) -> Iterator[str]:
    """Yield in words what differs."""
    for name in sorted({*expected, *found}):
        wanted, got = expected.get(name, {}), found.get(name, {})
        for key in sorted({*wanted, *got}):
            if wanted.get(key) != got.get(key):
                yield f"{name} {key!r}: expected {wanted.get(key)!r}, found {got.get(key)!r}"
