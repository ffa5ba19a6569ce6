"""A key-value store does what a dict does, whatever it is made of and whatever happens to it."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.conformance.stacks import KEY_VALUE
from tests.model.machines import SETTINGS, StoreMachine
from tests.model.models import KeyValueModel, bounds, keys, values


class KeyValueMachine(StoreMachine):
    kind = KEY_VALUE
    model_class = KeyValueModel
    model: KeyValueModel

    @rule(key=keys, value=values)
    def put_if_absent(self, key: bytes, value: int | None) -> None:
        present = self.model.held.get(key)
        assert self.store.put_if_absent(key, self.hold(value)) == present
        if present is None:
            self.model.put((key,), self.held(value))

    @rule(entries=st.lists(KeyValueModel.entries, max_size=4))
    def put_all(self, entries: list[Any]) -> None:
        self.store.put_all([(key, self.hold(value)) for key, value in entries])
        for key, value in entries:
            self.model.put((key,), self.held(value))

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        assert self.store.delete(key) == self.model.held.pop(key, None)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.held.get(key)

    @rule(start=bounds, end=bounds)
    def range(self, start: bytes | None, end: bytes | None) -> None:
        assert list(self.store.range(start, end)) == self.model.range(start, end)
        assert list(self.store.reverse_range(start, end)) == self.model.range(start, end, reverse=True)

    @rule(prefix=keys)
    def prefix_scan(self, prefix: bytes) -> None:
        wanted = [pair for pair in self.model.content() if pair[0].startswith(prefix)]
        assert list(self.store.prefix_scan(prefix)) == wanted


TestKeyValueMachine = KeyValueMachine.TestCase
TestKeyValueMachine.settings = SETTINGS
