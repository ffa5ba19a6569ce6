"""A versioned store does what a dict of versions does that forgets, whatever it is made of and happens to it."""

from typing import Any

from hypothesis.stateful import rule

from statestore import Headers, ResultOrder
from statestore.bytestore.versioned_rows import NOT_PUT
from tests.conformance.stacks import HEADERS, VERSIONED
from tests.model.machines import SETTINGS, StoreMachine
from tests.model.models import VersionedModel, found


class VersionedMachine(StoreMachine):
    kind = VERSIONED
    model_class = VersionedModel
    model: VersionedModel

    def held(self, value: int | None, *, legacy: bool = False) -> Any:
        assert self.stack is not None
        if value is None:
            return None
        return (value, Headers() if legacy else HEADERS) if self.stack.case.has_headers else (value,)

    @rule(entry=VersionedModel.entries)
    def put(self, entry: Any) -> None:
        self.put_entry(entry)

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
