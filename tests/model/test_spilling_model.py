"""A write set that spills, against a dict: at any moment, by itself and on demand."""

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.write_sets.spilling import ENTRY_BYTES, SpillingWriteSet
from tests.support.byte_store_model import pairs_between
from tests.support.recovery.spilling import small_space

KEYS = st.binary(max_size=2)  # short, so that they collide
VALUES = st.one_of(st.none(), st.binary(max_size=3))


class SpillingMachine(RuleBasedStateMachine):
    """Two models: what is committed, and what shows with the batch's writes over it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.space = small_space(Path(self.directory.name) / "spill", 6 * ENTRY_BYTES)
        self.space.__enter__()
        self.committed = MemoryDatabase(["store"]).family("store")
        self.store = SpillingWriteSet(self.committed, self.space)
        self.base: dict[bytes, bytes] = {}
        self.model: dict[bytes, bytes] = {}

    @rule(changes=st.lists(st.tuples(KEYS, VALUES), max_size=8))
    def write(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        self.store.write(changes)
        for key, value in changes:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule()
    def spill(self) -> None:
        self.store.spill()
        assert self.store.changes == {}

    @rule(end=KEYS)
    def delete_below(self, end: bytes) -> None:
        self.store.delete_below(end)
        self.model = {key: value for key, value in self.model.items() if key >= end}

    @rule()
    def clear(self) -> None:
        self.store.clear()
        assert not self.store.is_changed
        self.model = dict(self.base)

    @rule()
    def commit(self) -> None:
        self.store.apply_to(self.committed)
        assert dict(self.committed.range(None, None)) == self.model
        self.store.clear()
        self.base = dict(self.model)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(start=st.one_of(st.none(), KEYS), end=st.one_of(st.none(), KEYS), reverse=st.booleans())
    def range(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        assert list(self.store.range(start, end, reverse=reverse)) == pairs_between(self.model, start, end, reverse)

    @rule(changes=st.lists(st.tuples(KEYS, VALUES), max_size=8), taken=st.integers(0, 3), reverse=st.booleans())
    def scan_while_writing(self, changes: list[tuple[bytes, bytes | None]], taken: int, reverse: bool) -> None:
        wanted = sorted(self.model.items(), reverse=reverse)
        scan = self.store.range(None, None, reverse=reverse)
        found = list(islice(scan, taken))
        self.write(changes)
        self.spill()
        assert found + list(scan) == wanted

    @invariant()
    def nothing_is_lost_and_the_committed_is_as_it_was(self) -> None:
        assert dict(self.store.range(None, None)) == self.model
        assert dict(self.committed.range(None, None)) == self.base
        assert self.store.approximate_num_entries() >= 0

    def teardown(self) -> None:
        self.store.close()
        self.space.__exit__(None, None, None)
        self.directory.cleanup()


TestSpillingMachine = SpillingMachine.TestCase
TestSpillingMachine.settings = settings(max_examples=40, stateful_step_count=25)
