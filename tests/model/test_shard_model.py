"""A shard with stores of every kind, from pointer to pointer: a version holds what was committed up to it, always.

Two of the stores begin in an older format, and may be upgraded at any time. Databases are closed by those who give up
too; what a killed process leaves behind is test_local_marker.py's and test_upgrading.py's.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from statestore import Headers, StoreBuilder
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.conformance.stacks import (
    HEADERS,
    KEY_VALUE,
    PLAIN,
    SCRATCH,
    SESSION,
    TIMESTAMPED,
    TIMESTAMPED_WITH_HEADERS,
    VERSIONED,
    WINDOW,
    WINDOW_WITH_DUPLICATES,
    WITH_HEADERS,
    Kind,
    hold,
)
from tests.model.models import DuplicatesModel, KeyValueModel, Model, SessionModel, VersionedModel, WindowModel, copied
from tests.support.recovery import on_record
from tests.support.recovery.shards import wait_for_uploads


class Plan(NamedTuple):
    """What a store of the shard is: its formats, the one it begins with first, and its model."""

    kind: Kind
    formats: tuple[StoreFormat, ...]
    model: Callable[[], Model]
    persistent: bool = True


PLANS = {
    "joined": Plan(WINDOW_WITH_DUPLICATES, (PLAIN,), DuplicatesModel, persistent=False),
    "latest": Plan(KEY_VALUE, (TIMESTAMPED,), KeyValueModel, persistent=False),
    "prices": Plan(VERSIONED, (PLAIN, WITH_HEADERS), VersionedModel),
    "quotes": Plan(VERSIONED, (WITH_HEADERS,), VersionedModel, persistent=False),
    "sessions": Plan(SESSION, (WITH_HEADERS,), SessionModel, persistent=False),
    "totals": Plan(KEY_VALUE, (PLAIN, TIMESTAMPED_WITH_HEADERS), KeyValueModel),
    "windows": Plan(WINDOW, (TIMESTAMPED_WITH_HEADERS,), WindowModel),
}
ENTRIES = st.lists(
    st.sampled_from(sorted(PLANS)).flatmap(lambda name: st.tuples(st.just(name), PLANS[name].model.entries)),  # type: ignore[attr-defined]
    max_size=8,
)
Entries = list[tuple[str, tuple[Any, ...]]]


class Written(NamedTuple):
    """What a model holds: a value, and the format in which it was written."""

    value: int
    format: StoreFormat


class Abandoned(Exception):
    """Ends a batch in the middle."""


class ShardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(dir=SCRATCH)
        self.home = Path(self.directory.name)
        self.state_id = uuid.uuid4().hex  # what is in memory outlives the machine, under this name
        self.upgraded = False
        self.run_number = 0
        self.models: dict[str, Model] = {name: plan.model() for name, plan in PLANS.items()}
        self.recorded: str | None = None
        self.history: list[tuple[str | None, dict[str, Model]]] = [(None, copied(self.models))]

    def format(self, name: str) -> StoreFormat:
        return PLANS[name].formats[-1 if self.upgraded else 0]

    def builder(self, name: str) -> StoreBuilder[Any]:
        plan = PLANS[name]
        builder = plan.kind.builder(self.format(name), persistent=plan.persistent)
        builder = replace(builder, supplier=replace(builder.supplier, name=name))
        return builder.with_caching_enabled(max_bytes=64) if plan.kind.cached else builder

    @contextmanager
    def open(self, recorded: str | None) -> Iterator[tuple[ShardBatch, dict[str, Any]]]:
        """Hand out the shard and its stores at a recorded pointer, as a driver does."""
        builders = {name: self.builder(name) for name in PLANS}
        specs = tuple(builder.spec for builder in builders.values())
        in_memory = frozenset(name for name, plan in PLANS.items() if not plan.persistent)
        location = DurableLocation(self.home / "state")
        state = ShardedState(
            self.state_id,
            location,
            specs,
            LocalDirectory(self.home / "local"),
            in_memory,
            RecoveryOptions(snapshot_every_deltas=2, snapshot_budget_ms=10_000),
            f"run{self.run_number}",
            accept_older_checkpoint=True,
        )
        pointer = on_record(state).pointer(0, recorded)
        with state.open(pointer) as batch:
            yield (
                batch,
                {
                    name: builder.build(
                        batch.stores[name].bytes,
                        changelog=batch.stores[name].changelog,
                        context=TaskRecordContext(),
                        stream_time_ms=pointer.store_times_ms.get(name, -1),
                    )
                    for name, builder in builders.items()
                },
            )

    def put(self, stores: dict[str, Any], entries: Entries) -> None:
        for name, entry in entries:
            PLANS[name].kind.put(stores[name], partial(hold, self.format(name)), entry)

    def commit_batch(self, entries: Entries) -> CommitPointer:
        with self.open(self.recorded) as (batch, stores):
            self.put(stores, entries)
            return batch.commit(BatchEnd(store_times_ms=flush_stores(stores))).pointer

    def held(self, name: str, written: Written) -> Any:
        """Return what the store holds now of something that was written then."""
        now = self.format(name)
        legacy = written.format is not now
        headers = Headers() if legacy else HEADERS
        if isinstance(self.models[name], VersionedModel):
            return (written.value, headers) if now is WITH_HEADERS else (written.value,)
        return hold(now, written.value, *((-1, headers) if legacy else ()))

    def expected(self, name: str, model: Model) -> Any:
        """Return a model's content as the store of this name holds it now."""
        content: Any = model.content()
        if isinstance(model, VersionedModel):
            return {
                key: [(self.held(name, written), *times) for written, *times in versions]
                for key, versions in content.items()
            }
        return [(key, self.held(name, written)) for key, written in content]

    def check(self, recorded: str | None, models: dict[str, Model]) -> None:
        with self.open(recorded) as (_, stores):
            for name, model in models.items():
                assert model.content_of(stores[name]) == self.expected(name, model), name

    @rule(entries=ENTRIES)
    def commit(self, entries: Entries) -> None:
        self.recorded = self.commit_batch(entries).to_json()
        for name, entry in entries:
            self.models[name].put(entry, None if entry[1] is None else Written(entry[1], self.format(name)))
        self.history.append((self.recorded, copied(self.models)))

    @rule(entries=ENTRIES)
    def commit_what_spark_does_not_keep(self, entries: Entries) -> None:
        self.commit_batch(entries)

    @rule(entries=ENTRIES)
    def abandon(self, entries: Entries) -> None:
        with suppress(Abandoned), self.open(self.recorded) as (_, stores):
            self.put(stores, entries)
            raise Abandoned

    @rule(data=st.data())
    def read_an_older_version(self, data: st.DataObject) -> None:
        self.check(*data.draw(st.sampled_from(self.history), "version"))

    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(1, len(self.history)), "versions kept")
        del self.history[kept:]
        self.run_number += 1  # going back is a new start of the query, from an older checkpoint
        self.recorded, models = self.history[-1]
        self.models = copied(models)

    @rule()
    def lose_the_local_copies(self) -> None:
        shutil.rmtree(self.home / "local", ignore_errors=True)

    @rule()
    def upgrade(self) -> None:
        self.upgraded = True

    @rule()
    def finish_upgrade(self) -> None:
        with self.open(self.recorded) as (batch, _):
            batch.finish_upgrades(1_000)

    @invariant()
    def the_current_version_is_there(self) -> None:
        self.check(self.recorded, self.models)

    def teardown(self) -> None:
        wait_for_uploads()  # one would write into the folder while it is removed
        self.directory.cleanup()


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(max_examples=25, stateful_step_count=12)


def test_what_came_too_late_stays_out_when_it_is_restored() -> None:
    machine = ShardMachine()
    machine.commit([(name, (b"k", 1, 400)) for name in ("prices", "quotes", "windows")])
    machine.commit([(name, (b"l", 2, 100)) for name in ("prices", "quotes", "windows")])
    machine.the_current_version_is_there()
    machine.lose_the_local_copies()
    machine.the_current_version_is_there()
    with machine.open(machine.recorded) as (_, stores):
        assert [key.key for key, _ in stores["windows"].all()] == [b"k"]
        for name in ("prices", "quotes"):
            assert stores[name].get(b"k").timestamp_ms == 400
            assert stores[name].get(b"l") is None
    machine.teardown()
