"""A reader in the simulation: a `StateView` that follows the heads of a state, on a machine of its own.

It looks when a head was published, unless it still is at the one before: goes on to the newest, and reads all that is
there, while queries go on. What it finds must be what a checkpoint has of one batch, which Spark has committed, in all
shards. What that holds is known from what batches have put into clean stores, not from pointers that the view has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from statestore import Serdes
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.errors import StateStoreError
from statestore.errors.state import ViewBehindError
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head
from statestore.view import StateView
from statestore.view.open_shards import OpenShard
from tests.simulation.machines import Machine
from tests.simulation.scheduler import Actor, Killed, Process
from tests.simulation.workload import KEYS_BY_HASH, TRACES, Content, Reference, Workload, build, differences

if TYPE_CHECKING:
    from tests.simulation.spark import Checkpoint
    from tests.simulation.world import Site

_LATEST_MS: Final = 2**50
_OF_KEY: Final[dict[str, Callable[[Any, bytes], Any]]] = {
    "totals": lambda store, key: store.get(key),
    "prices": lambda store, key: (store.get(key), list(store.get(key, 0, _LATEST_MS))),
    "quotes": lambda store, key: (store.get(key), list(store.get(key, 0, _LATEST_MS))),
    "windows": lambda store, key: list(store.fetch(key, 0, _LATEST_MS)),
    "sessions": lambda store, key: list(store.find_sessions(key, 0, _LATEST_MS)),
}
_ALL: Final[dict[str, Callable[[Any], Any]]] = {
    "totals": lambda store: store.all(),
    "windows": lambda store: store.all(),
    "sessions": lambda store: store.fetch(None, None),
}


class Reader:
    """Follows the heads of one state."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.name = f"reader{site.number}"
        self._machine = Machine(self.name, site.world.home / "machines" / self.name, site.world.plan.engine)
        self._process = Process(self.name, self._machine)
        self._actor: Actor | None = None
        self._view: StateView | None = None
        self._stores: dict[str, Any] = {}
        self._published: list[Head] = []
        self._seen = 0

    def told(self, head: Head) -> None:
        """Have it look, now that this head is the newest."""
        self._published.append(head)
        if self._actor is None or self._actor.done:
            if self._process.dead:
                self._process = Process(self.name, self._machine)
            name = f"{self.name}.{len(self._published)}"
            self._actor = self.site.world.scheduler.spawn(name, self._process, self._look)

    def close(self) -> None:
        """Let go of what it has open, as a process that dies does."""
        self._process.dead = True
        view, self._view, self._stores = self._view, None, {}
        if view is not None:
            # Now, not when it is collected: what is dead then writes in the name of who runs.
            with suppress(Killed, StateStoreError, OSError):
                view.close()

    def _look(self) -> None:
        try:
            while self._seen < len(self._published):
                self._seen = len(self._published)
                for step in (self._go_on, self._read):
                    try:
                        step()
                    except (StateStoreError, OSError) as failure:
                        self._judge(failure)
        except Killed:
            self.close()
            raise

    def _go_on(self) -> None:
        if self._view is None:
            local_dir, seed = self._machine.path, self.site.world.plan.seed
            self._view = StateView(self.site.location(), local_dir=local_dir, max_open_shards=1 + seed % 2)
        else:
            self._view.refresh()
        if self._view.head not in self._published[self._seen - 1 :]:
            self._fail(f"is at {self._view.head}, and {self._published[self._seen - 1]} was published before it looked")

    def _read(self) -> None:
        view, workload = self._view, self.site.workload
        if view is None or view.head is None:
            return
        # Not all that the state has: a start with more shards may have recorded it, and another run does without.
        found = [_found(view.shard(shard)) for shard in range(self.site.shards)]
        wrong = ["no checkpoint has it as committed"]
        for checkpoint in self.site.checkpoints:
            expected = self._expected(checkpoint, view.head, found)
            if isinstance(expected, str):
                wrong.append(f"{checkpoint.name}: {expected}")
            elif type(workload) is Workload:
                return self._read_stores(view, expected)
            else:
                return None
        self._fail(f"wrong content at batch {view.batch}: {'; '.join(wrong)}")

    def _expected(
        self, checkpoint: Checkpoint, head: Head, found: list[tuple[Content, Mapping[str, int]]]
    ) -> list[Reference] | str:
        """Return what a checkpoint has of a batch, if that is what was found; else what is wrong."""
        number, recorded = head.batch + 1, checkpoint.recorded[self.site]
        if checkpoint.query_id != head.query or number > checkpoint.committed:
            return "has not committed it"
        expected = []
        for shard, (content, times_ms) in enumerate(found):
            # In the first format of checkpoints an attempt that lost may have replaced the pointer of the one that won.
            texts = {recorded.pointer(shard, number), recorded.committers.get((shard, number))} - {None}
            problems: list[str] = []
            for text in sorted(map(str, texts)):
                reference = self.site.oracle.reference(CommitPointer.from_json(text))
                assert reference is not None
                told = differences(reference.content, self.site.workload.shown(content, times_ms))
                known_ms = {name: time_ms for name, time_ms in reference.times_ms.items() if time_ms >= 0}
                wrong = [] if times_ms == known_ms else [f"times: {times_ms}, not {known_ms}"]
                wrong += told
                if not wrong:
                    expected.append(reference)
                    break
                problems += wrong[:3]
            else:
                return f"shard {shard}: {problems or 'nothing is recorded'}"
        return expected

    def _read_stores(self, view: StateView, expected: list[Reference]) -> None:
        shards = [_stores_of(reference) for reference in expected]
        for name in self.site.workload.stores:
            if name not in self._stores:
                self._stores[name] = view.store(name, key_serde=Serdes.bytes(), value_serde=Serdes.int64())
            store = self._stores[name]
            in_shards = [stores[name] for stores in shards]
            if name in _ALL:
                self._same(f"all of {name}", _ALL[name](store), [e for each in in_shards for e in _ALL[name](each)])
            if view.metadata.shards == 1 or self.site.world.plan.by_hash:
                for key in KEYS_BY_HASH:
                    wanted = [_OF_KEY[name](each, key) for each in in_shards]
                    has = [each for each in wanted if each not in (None, [], (None, []))]
                    self._same(f"{name} of {key!r}", [_OF_KEY[name](store, key)], has or wanted[:1])
            if view.metadata.stores[[spec.name for spec in view.metadata.stores].index(name)].indexed_headers:
                self._find(store, in_shards)

    def _find(self, store: Any, in_shards: list[Any]) -> None:
        for value in TRACES:
            entries = [
                (key, held)
                for each in in_shards
                for key, held in (
                    ((key, each.get(key)) for key in KEYS_BY_HASH) if store.name not in _ALL else _ALL[store.name](each)
                )
                if held is not None and held.headers.last_header("trace").value == value
            ]
            self._same(f"{store.name} by trace {value!r}", store.by_header("trace", value), entries)

    def _same(self, what: str, found: Any, expected: Any) -> None:
        """Fail unless the same was found, in any order: keys are in several shards."""
        shown, wanted = (sorted(map(repr, each)) for each in (found, expected))
        if shown != wanted:
            assert self._view is not None
            self._fail(f"wrong content at batch {self._view.batch}: {what}: expected {wanted}, found {shown}")

    def _judge(self, failure: BaseException) -> None:
        """Fail unless a look had a reason to fail."""
        oracle, view = self.site.oracle, self._view
        if isinstance(failure, ViewBehindError):
            explained = view is not None and view.head != self._published[-1]
        else:
            explained = oracle.is_injected(failure)
        if not explained:
            oracle.unexplained(self.name, failure)

    def _fail(self, problem: str) -> None:
        self.site.world.scheduler.fail(f"{self.name}: {problem}")


def _found(shard: OpenShard) -> tuple[Content, Mapping[str, int]]:
    """Return what a shard of the view holds, and the times of its stores."""
    content = {name: dict(store.bytes.range(None, None)) for name, store in shard.stores.items()}
    return content, {name: time_ms for name, time_ms in shard.pointer.store_times_ms.items() if time_ms >= 0}


def _stores_of(reference: Reference) -> Mapping[str, Any]:
    """Return typed stores that hold what a shard must hold."""
    database = MemoryDatabase(reference.workload.stores)
    inner = {name: database.family(name) for name in reference.workload.stores}
    for name, pairs in reference.content.items():
        inner[name].write(pairs.items())
    return build(inner, reference.times_ms, TaskRecordContext(reference.stream_time_ms, 0))
