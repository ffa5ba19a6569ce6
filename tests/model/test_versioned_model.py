"""A versioned store does what a dict of versions does that forgets, whatever it is made of and happens to it."""

from itertools import product
from typing import Any

import pytest
from hypothesis.stateful import rule

from statestore import Headers, ResultOrder
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.versioned_rows import NOT_PUT, VersionedRows
from statestore.format.keys.window_key import MAX_TIME_MS
from tests.conformance.stacks import HEADERS, VERSIONED
from tests.model.machines import SETTINGS, StoreMachine
from tests.model.models import VersionedModel, found
from tests.support.soak.version_history import VersionHistory


class VersionedMachine(StoreMachine):
    kind = VERSIONED
    model_class = VersionedModel
    model: VersionedModel

    def held(self, value: int | None, *, legacy: bool = False) -> Any:
        assert self.stack is not None
        if value is None:
            return None
        return (value, Headers() if legacy else HEADERS) if self.stack.case.has_headers else (value,)

    @rule(key=VersionedModel.keys, time_ms=VersionedModel.times)
    def delete(self, key: bytes, time_ms: int) -> None:
        before = self.model.as_of(key, time_ms)
        put = self.model.put((key, None, time_ms), None)
        assert found(self.store.delete(key, time_ms)) == (None if put == NOT_PUT else before)

    @rule(key=VersionedModel.keys)
    def get(self, key: bytes) -> None:
        latest = [one for one in self.model.content()[key] if one[2] is None]
        assert found(self.store.get(key)) == (latest[0] if latest else None)

    @rule(key=VersionedModel.keys, time_ms=VersionedModel.times)
    def get_as_of(self, key: bytes, time_ms: int) -> None:
        assert found(self.store.get(key, time_ms)) == self.model.as_of(key, time_ms)

    @rule(key=VersionedModel.keys, first_ms=VersionedModel.times, last_ms=VersionedModel.times)
    def get_between(self, key: bytes, first_ms: int, last_ms: int) -> None:
        wanted = self.model.between(key, first_ms, last_ms)
        for order, expected in ((ResultOrder.ASCENDING, wanted), (ResultOrder.DESCENDING, wanted[::-1])):
            assert [found(one) for one in self.store.get(key, first_ms, last_ms, order)] == expected


TestVersionedMachine = VersionedMachine.TestCase
TestVersionedMachine.settings = SETTINGS


@pytest.mark.parametrize(
    ("times_ms", "retention_ms", "segment_ms"),
    [((1, 2, 3), 1_000, 1_000), ((1, 2, 3), 1_000, 1), ((1, 2, 4), 2, 1)],
    ids=["one segment", "a segment each", "expiring"],
)
def test_every_sequence_of_five_puts_at_three_times(
    times_ms: tuple[int, ...], retention_ms: int, segment_ms: int
) -> None:
    """Of values and tombstones: versions of the same time are too rare where times are drawn."""
    for puts in product(product(times_ms, (True, False)), repeat=5):
        store = MemoryDatabase(["s"]).family("s")
        rows = VersionedRows(store, Segments(store, retention_ms, segment_ms))
        model = VersionHistory(retention_ms, segment_ms)
        for number, (time_ms, has_value) in enumerate(puts):
            value = bytes([number]) if has_value else None
            assert rows.put(b"k", value, time_ms) == model.add(b"k", value, time_ms), puts
        held = [(one.value, one.valid_from_ms, one.valid_to_ms) for one in rows.between(b"k", 0, MAX_TIME_MS)]
        assert held == model.between(b"k", 0, MAX_TIME_MS), puts
