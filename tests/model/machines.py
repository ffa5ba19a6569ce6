"""What the state machines of the kinds share: how a store comes about, what may happen to it, how it is restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statestore import Headers
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows
from statestore.bytestore.protocol import ByteStore
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from statestore.recovery.commit.changelog import ChangelogRecord, restored_changes
from tests.conformance.stacks import NAME, PLAIN, SCRATCH, TIMESTAMP_MS, Entry, Kind, Stack, cases
from tests.model.models import Model

SETTINGS = settings(max_examples=60, stateful_step_count=25)


class StoreMachine(RuleBasedStateMachine):
    """A store as any case of its kind describes it, against its model."""

    kind: Kind
    model_class: Callable[[], Model]

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(dir=SCRATCH)
        self.stack: Stack | None = None
        self.model: Any = self.model_class()

    @initialize(data=st.data())
    def open_over_what_is_there(self, data: st.DataObject) -> None:
        case = data.draw(st.sampled_from(cases(self.kind)), "case")
        content = data.draw(st.lists(self.model_class.entries, max_size=12), "content")  # type: ignore[attr-defined]
        stack = self.stack = Stack(case, self.directory.name)
        stack.open(*content)
        for index, entry in enumerate(content):
            self.model.put(entry, self.held(entry[1], legacy=index < stack.found_of(content)))

    @property
    def store(self) -> Any:
        assert self.stack is not None
        return self.stack.store

    def hold(self, value: int | None) -> Any:
        """Return what is put for a value."""
        assert self.stack is not None
        return self.stack.hold(value)

    def held(self, value: int | None, *, legacy: bool = False) -> Any:
        """Return what the model holds of a value; of a legacy one what its format had room for."""
        assert self.stack is not None
        holder = self.stack.hold(value)
        if legacy:
            timestamp_ms = -1 if self.stack.case.older is PLAIN else TIMESTAMP_MS
            holder = self.stack.hold(value, timestamp_ms, Headers())
        return holder

    @rule(entry=st.runner().flatmap(lambda machine: machine.model_class.entries))
    def put(self, entry: Entry) -> None:
        assert self.stack is not None
        wanted = self.model.put(entry, self.held(entry[1]))
        assert self.stack.put(*entry) == wanted

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def reopen(self) -> None:
        assert self.stack is not None
        self.stack.reopen()

    @rule()
    def move_a_slice(self) -> None:
        moved_before = self.store.upgrade_progress().entries_moved
        progress = self.store.finish_upgrade(budget_ms=0)
        # A slice is more than any database of these stores holds, and in a task directory each segment has its own.
        assert progress.is_finished or progress.entries_moved > moved_before

    @rule(compacted=st.booleans())
    def restore(self, compacted: bool) -> None:
        """Restore the changelog into an empty store of the other engine: it holds the same."""
        stack = self.stack
        assert stack is not None
        if not stack.case.is_logged:
            return
        older = stack.spec.format if stack.case.older is None else stack.case.older
        logged = [(older, record) for record in stack.older_records]
        logged += [(stack.spec.format, record) for record in stack.records()]
        if compacted and stack.spec.kind is not StoreKind.VERSIONED:
            logged = list({record.key: (written_as, record) for written_as, record in logged}.values())
        with TemporaryDirectory(dir=SCRATCH) as home:
            database: Any = MemoryDatabase([NAME]) if stack.case.engine != "memory" else RocksDBDatabase(home, [NAME])
            restored = database.family(NAME)
            stream_time_ms = getattr(self.model, "stream_time_ms", -1)
            replay(stack.spec, restored, logged, stream_time_ms)
            # Only the bytes are looked at: when they expire is not in this changelog.
            lasting = replace(stack.builder.with_caching_disabled(), time_to_live=None)
            store = lasting.build(restored, stream_time_ms=stream_time_ms)
            assert self.model.content_of(store) == self.model.content()
            database.close()

    @invariant()
    def everything_is_there(self) -> None:
        if self.stack is not None:
            assert self.model.content_of(self.store) == self.model.content()
            assert self.store.stream_time_ms == getattr(self.model, "stream_time_ms", None)

    def teardown(self) -> None:
        if self.stack is not None:
            self.stack.close()
        self.directory.cleanup()


def replay(
    spec: StoreSpec, store: ByteStore, logged: Sequence[tuple[StoreFormat, ChangelogRecord]], stream_time_ms: int
) -> None:
    """Bring changelog records, each with the format that its store had, into an empty store, as `restore` does it."""
    if spec.kind is StoreKind.VERSIONED:
        rows = VersionedRows(store, Segments(store, *spec.retention))
        for _, (key, value, time_ms, header_bytes) in logged:
            rows.put(key, join_stored(spec.format, value, time_ms, header_bytes), time_ms)
        return
    for written_as, record in logged:
        store.write(restored_changes(spec, written_as, [record]))
    if spec.kind.is_segmented:
        segments = Segments(store, *spec.retention, stream_time_ms)
        store.delete_below(segment_prefix(segments.first_live))
