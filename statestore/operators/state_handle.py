"""What a stateful processor asks for its states and timers. Named as Spark's StatefulProcessorHandle.

States must be known before a query runs. So `init` runs once when the topology is made, on a handle that notes which
states it asks for; then in the rehearsal before a query starts and in each batch, on a handle that returns them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import islice
from operator import index
from typing import Any, Final, NamedTuple, TypeVar

from statestore.errors.run import StateHandleError
from statestore.format.keys.due_key import due_bounds, due_key, time_and_key, timer_place, timer_time
from statestore.format.keys.entry_key import LIST_KEYS, MAP_KEYS, VALUE_KEYS
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import Serde, Serdes
from statestore.operators.keyed_state import KeyedList, KeyedMap, KeyedValue, KeyScope, keyed_state_store
from statestore.stores.builder import StoreBuilder
from statestore.stores.key_value import KeyValueStore
from statestore.stores.stores import Stores
from statestore.stores.supplier import Duration

K = TypeVar("K")
V = TypeVar("V")

_DELETED_AT_ONCE: Final = 10_000


class TimeMode(Enum):
    """Which clock timers follow, if there are any: the wall clock, or stream time."""

    NONE = "none"
    PROCESSING_TIME = "processing_time"
    EVENT_TIME = "event_time"


class StateKind(Enum):
    """What a state holds. The first three values are recorded: they say what the store's keys are made of."""

    VALUE = VALUE_KEYS
    LIST = LIST_KEYS
    MAP = MAP_KEYS
    DELETED = "deleted"


class StateDeclaration(NamedTuple):
    """A state that `init` asked for, and the store that it is kept in."""

    kind: StateKind
    builder: StoreBuilder[Any]


class StatefulProcessorHandle(ABC):
    """Hands out states, and sets the timers of the key that is being processed.

    States are asked for in `init`, and in no other place; the same ones each time it runs. A state is kept in a store
    of its name. Raises StateHandleError for what can't be had.
    """

    def __init__(self, scope: KeyScope[Any], time_mode: TimeMode, *, persistent: bool) -> None:
        self._scope = scope
        self._time_mode = time_mode
        self._persistent = persistent
        self._in_init = True

    def get_value_state(
        self, name: str, serde: Serde[V], ttl_ms: Duration | None = None, *, ttl_clock: str = "processing"
    ) -> KeyedValue[V]:
        """Return the state `name`, which holds one value of each key.

        With `ttl_ms`, a value is gone when that time has passed since it was last written, on the wall clock or, with
        `ttl_clock="event"`, in stream time. Raises ValueError for illegal arguments.
        """
        return KeyedValue(self._scope, self._declare(StateKind.VALUE, name, serde, ttl_ms, ttl_clock))

    def get_list_state(
        self, name: str, serde: Serde[V], ttl_ms: Duration | None = None, *, ttl_clock: str = "processing"
    ) -> KeyedList[V]:
        """Return the state `name`, which holds a list of each key. Each entry expires by itself."""
        return KeyedList(self._scope, self._declare(StateKind.LIST, name, serde, ttl_ms, ttl_clock))

    def get_map_state(
        self,
        name: str,
        map_key_serde: Serde[K],
        value_serde: Serde[V],
        ttl_ms: Duration | None = None,
        *,
        ttl_clock: str = "processing",
    ) -> KeyedMap[K, V]:
        """Return the state `name`, which holds a map of each key. Each entry expires by itself."""
        store = self._declare(StateKind.MAP, name, value_serde, ttl_ms, ttl_clock)
        return KeyedMap(self._scope, store, map_key_serde)

    def delete_if_exists(self, name: str, *, had_ttl: bool = False) -> None:
        """Delete all that the state `name` holds, which `init` no longer asks for.

        Up to ten thousand entries a shard and batch. The store stays declared, as its past is in the state location; if
        its entries expired, say `had_ttl`.
        """
        ttl_ms = 2**62 if had_ttl else None  # only what is there already matters
        self._delete_all(self._declare(StateKind.DELETED, name, Serdes.bytes(), ttl_ms, "processing"))

    def register_timer(self, expiry_timestamp_ms: int) -> None:
        """Have `handle_expired_timer` called for this key once this time has come; a timer that is there stays.

        By event time, one for a time that has come already fires at the end of the batch, or if it is set by a timer,
        of the next. By processing time it waits for the next time that timers are looked at (`timer_resolution_ms`).
        Raises ValueError for a negative time.
        """
        self._timers().register(self._timer_key(), expiry_timestamp_ms)

    def delete_timer(self, expiry_timestamp_ms: int) -> None:
        """Delete the timer of this key and time, if it is there."""
        self._timers().delete(self._timer_key(), expiry_timestamp_ms)

    def list_timers(self) -> Iterator[int]:
        """Yield the times of this key's timers, in milliseconds since the epoch, earliest first."""
        return self._timers().of_key(self._timer_key())

    def leave_init(self) -> None:
        """Hand out no states from now on. The runner's to call."""
        self._in_init = False

    def _declare(self, kind: StateKind, name: str, serde: Serde[Any], ttl_ms: Duration | None, ttl_clock: str) -> Any:
        if not self._in_init:
            raise StateHandleError(name, "states can be asked for in init() only. Keep what it returns in an attribute")
        if not isinstance(serde, Serde):
            raise TypeError(f"state {name!r} needs a Serde (see Serdes), not {serde!r}")
        builder = keyed_state_store(name, serde, ttl=ttl_ms, ttl_clock=ttl_clock, persistent=self._persistent)
        return self._store(StateDeclaration(kind, builder))

    def _timer_key(self) -> bytes:
        return self._scope.key_bytes("timers")

    def _timers(self) -> Timers:
        if self._time_mode is TimeMode.NONE:
            raise StateHandleError("timers", 'there are none with time_mode="none": choose another mode')
        return self._live_timers()

    @abstractmethod
    def _store(self, declaration: StateDeclaration) -> Any:
        """Return the store of a state."""

    @abstractmethod
    def _delete_all(self, store: Any) -> None:
        """Delete what a state that is no longer used still holds."""

    @abstractmethod
    def _live_timers(self) -> Timers:
        """Return the timers. Raises StateHandleError in `init`."""


class CollectingHandle(StatefulProcessorHandle):
    """Notes what `init` asks for; the states that it returns can't be used."""

    def __init__(self, key_serde: Serde[Any], time_mode: TimeMode, *, persistent: bool) -> None:
        super().__init__(KeyScope(key_serde), time_mode, persistent=persistent)
        self.declared: dict[str, StateDeclaration] = {}

    def _store(self, declaration: StateDeclaration) -> Any:
        name = declaration.builder.name
        if name in self.declared:
            raise StateHandleError(name, "was asked for twice; each state needs a name of its own")
        self.declared[name] = declaration
        return _NoStore(name)

    def _delete_all(self, store: Any) -> None:
        """Nothing is there yet."""

    def _live_timers(self) -> Timers:
        raise StateHandleError("timers", "can't be used in init(): set timers while a key is processed")


class _NoStore:
    """Stands for a store before there is one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        raise StateHandleError(self._name, "can't be used in init(): no key is being processed")


class LiveHandle(StatefulProcessorHandle):
    """Hands out states on the stores of a task."""

    def __init__(
        self,
        scope: KeyScope[Any],
        time_mode: TimeMode,
        declared: Mapping[str, StateDeclaration],
        store_of: Callable[[str], Any],
        timers: Timers | None,
    ) -> None:
        super().__init__(scope, time_mode, persistent=True)
        self._declared = declared
        self._store_of = store_of
        self._all_timers = timers

    def _store(self, declaration: StateDeclaration) -> Any:
        name = declaration.builder.name
        declared = self._declared.get(name)
        if declared is None or declared.kind is not declaration.kind:
            was = "not asked for" if declared is None else f"a {declared.kind.value} state"
            raise StateHandleError(
                name, f"was {was} when the topology was made: init() must ask for the same states every time"
            )
        return self._store_of(name)

    def _delete_all(self, store: Any) -> None:
        with store.all() as entries:
            store.put_all([(key, None) for key, _ in islice(entries, _DELETED_AT_ONCE)])

    def _live_timers(self) -> Timers:
        assert self._all_timers is not None  # the time mode is not NONE
        return self._all_timers


def timer_store(name: str, *, persistent: bool = True) -> StoreBuilder[KeyValueStore[bytes, bytes]]:
    """Return the builder of a store of timers."""
    supplier = Stores.persistent_key_value_store(name) if persistent else Stores.in_memory_key_value_store(name)
    return Stores.key_value_store_builder(supplier, Serdes.bytes(), Serdes.bytes())


class Timers:
    """The timers of a shard, in a store of plain bytes: each fires once, whatever is restarted when.

    Times are milliseconds since the epoch; a key has at most one timer of each time. Each stands in the store twice, in
    order of time and by key: see `format.keys.due_key`.
    """

    def __init__(self, store: KeyValueStore[bytes, bytes]) -> None:
        self._store = store

    def register(self, key: bytes, time_ms: int) -> None:
        """Set a timer; one that is there stays. Raises ValueError for a negative time, or one beyond 2^63 - 1."""
        by_time, by_key = _places(key, time_ms)
        self._store.put(by_time, b"")
        self._store.put(by_key, b"")

    def delete(self, key: bytes, time_ms: int) -> bool:
        """Delete a timer, and return whether it was there."""
        by_time, by_key = _places(key, time_ms)
        if self._store.get(by_time) is None:
            return False
        self._store.put(by_time, None)
        self._store.put(by_key, None)
        return True

    def of_key(self, key: bytes) -> Iterator[int]:
        """Yield the times of a key's timers, earliest first, as of the call."""
        entries = self._store.range(timer_place(key, 0), timer_place(key, MAX_TIME_MS))
        return (timer_time(place) for place, _ in entries)

    def due(self, now_ms: int) -> Iterator[tuple[int, bytes]]:
        """Yield time and key of the timers up to `now_ms`, in order of time, then of key, as of the call."""
        with self._store.range(*due_bounds(now_ms)) as entries:
            for place, _ in entries:
                time_ms, key = time_and_key(place)
                if time_ms > now_ms:
                    return
                yield time_ms, key


def _places(key: bytes, time_ms: int) -> tuple[bytes, bytes]:
    time_ms = index(time_ms)  # numpy's integers too, but no floats
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise ValueError(f"the time of a timer must be 0 or more milliseconds since the epoch, got {time_ms}")
    return due_key(time_ms, key), timer_place(key, time_ms)
