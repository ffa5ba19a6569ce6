"""The read-only classes of stores over all shards: reads of one key go to its shard, all others to all of them.

The classes alone say which reads there are. One is of a single key if its first argument is called `key`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import wraps
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, Final, TypeAlias

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.errors.state import StoreClosedError
from statestore.format.serde import Serde
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.stores.facades import facade
from statestore.stores.iterator import StoreIterator
from statestore.stores.readable_store import ReadableStore
from statestore.stores.stores import recorded_store_builder, store_class_of
from statestore.view.sharded_store import MergedStore, ShardedStore, readable

Read: TypeAlias = Callable[..., Any]

_KEY: Final = "key"


class StoreReading:
    """How what a store holds is read: by which serdes, and as which format."""

    def __init__(self, key_serde: Serde[Any], value_serde: Serde[Any], shown: StoreFormat) -> None:
        self._serdes = key_serde, value_serde
        self._shown = shown

    def over(self, sharded: ShardedStore, store: ByteStore, stream_time_ms: int) -> ReadableStore:
        """Return the read-only store on these bytes."""
        spec = sharded.spec
        built = recorded_store_builder(spec, *self._serdes).build(store, stream_time_ms=stream_time_ms)
        if self._shown is spec.format:
            return built.read_only()
        change = facade(spec.format, self._shown)
        assert change is not None  # checked when the store was asked for
        return built.with_codec(store_class_of(spec.kind, self._shown), change).read_only()


class RoutedReads(ReadableStore):
    """What the classes over all shards have in common; `of` makes one."""

    _base: ClassVar[type[ReadableStore]]
    _sharded: ShardedStore
    _reading: StoreReading

    @staticmethod
    def of(sharded: ShardedStore, reading: StoreReading) -> RoutedReads:
        """Return a store over all shards, of the read-only class that the query has."""
        routed_class = _routed(type(reading.over(sharded, MemoryByteStore(sharded.spec.name), NO_STREAM_TIME)))
        made = routed_class.__new__(routed_class)
        made._sharded, made._reading = sharded, reading
        made._take_shards()
        return made

    def go_on(self, metadata: StateMetadata) -> None:
        """Take the shards as they are now; if the store is another one, reads say so."""
        if self._sharded.spec in metadata.stores:
            self._take_shards()
        else:
            self._sharded.problem = "it was dropped or has another format now: ask the view for it again"

    def _take_shards(self) -> None:
        self._sharded.go_on()
        times_ms = self._sharded.stream_times_ms()
        # Each shard hides what is too old in it; the time of the slowest shard hides no more than that.
        slowest_ms = min(times_ms, default=NO_STREAM_TIME)
        reads_all = self._reading.over(self._sharded, readable(MergedStore(self._sharded)), slowest_ms)
        self._base.__init__(self, reads_all._parts)
        self._latest_ms = max(times_ms, default=NO_STREAM_TIME)
        self._nothing = self._reading.over(self._sharded, MemoryByteStore(self.name), NO_STREAM_TIME)

    @property
    def stream_time_ms(self) -> int | None:
        """The latest time that was put into any shard; -1 if none is known, None for a store that keeps no time."""
        return self._latest_ms if self._sharded.spec.kind.is_segmented else None

    def _ask(self, read: Read, key: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Read the shard that should have a key, then others that may: until one has a value, all for iterators."""
        sharded, name = self._sharded, read.__name__
        first, then = sharded.holding.order(self._require_key(key), sharded.numbers)
        store = self._in(first[0]) if first else self._nothing
        found: Any = getattr(store, name)(*given, **named)
        others = (getattr(self._in(number), name)(*given, **named) for number in then)
        if not isinstance(found, StoreIterator):
            return found if found is not None else next((each for each in others if each is not None), None)
        if LAYOUTS[sharded.spec.kind].keeps_versions:
            # Read at once: unlike scans, these do not keep their shards open.
            versions = [*found, *chain.from_iterable(others)]
            return self._iterate(each for each in versions)
        if not then:
            return found
        found.close()
        return read(self, *given, **named)

    def _stored_by_header(self, name: str, value: bytes) -> Iterator[Pair]:
        found = [self._in(number)._stored_by_header(name, value) for number in self._sharded.numbers]
        return self._of_one_batch(merge(*found, key=itemgetter(0)), self._sharded.shards.pointers)

    def _of_one_batch(self, pairs: Iterator[Pair], pointers: Sequence[CommitPointer]) -> Generator[Pair, None, None]:
        """Yield pairs that are read when their turn comes, as long as the view is at the batch of these pointers."""
        for pair in chain(pairs, (None,)):
            if self._sharded.shards.pointers is not pointers:
                raise StoreClosedError(self.name)
            if pair is not None:
                yield pair

    def _in(self, number: int) -> ReadableStore:
        sharded = self._sharded
        shard = sharded.shard(number)
        found: ReadableStore | None = shard.built.get(self)
        if found is None:
            time_ms = shard.stream_time_ms(self.name)
            shard.built[self] = found = self._reading.over(sharded, sharded.bytes_in(number), time_ms)
        return found


_CLASSES: Final[dict[type[ReadableStore], type[RoutedReads]]] = {}


def _routed(base: type[ReadableStore]) -> type[RoutedReads]:
    """Return the class over all shards of a read-only class."""
    if base not in _CLASSES:
        _CLASSES[base] = _make_routed(base)
    return _CLASSES[base]


def _make_routed(base: type[ReadableStore]) -> type[RoutedReads]:
    routed = {name: _to_shard_of_key(name, read) for name, read in reads(base).items() if _is_of_key(base, name)}
    return type(base.__name__, (RoutedReads, base), {"__doc__": base.__doc__, "_base": base, **routed})


def reads(base: type[ReadableStore]) -> dict[str, Read]:
    """Return the methods to read that a read-only class has, by name."""
    found = inspect.getmembers(base, inspect.isfunction)
    return {name: read for name, read in found if not name.startswith("_") and name != ReadableStore.read_only.__name__}


def _is_of_key(base: type[ReadableStore], name: str) -> bool:
    """Return whether a read may be of one key."""
    forms = base._FORMS.get(name)
    if forms is not None:
        return forms.may_begin_with(_KEY)
    return [*inspect.signature(getattr(base, name)).parameters][1:2] == [_KEY]


def _to_shard_of_key(name: str, read: Read) -> Read:
    @wraps(read)
    def routed(self: RoutedReads, *given: Any, **named: Any) -> Any:
        forms = self._FORMS.get(name)
        form = (_KEY,) if forms is None else forms.form(len(given), named)
        if form is None or form[0] != _KEY:
            return read(self, *given, **named)
        return self._ask(read, given[0] if given else named[_KEY], given, named)

    return routed
