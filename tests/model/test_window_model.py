"""A window store does what a dict of windows does that forgets, whatever it is made of and whatever happens to it."""

from hypothesis.stateful import rule

from tests.conformance.stacks import WINDOW, WINDOW_WITH_DUPLICATES
from tests.model.machines import SETTINGS, StoreMachine
from tests.model.models import DuplicatesModel, WindowModel, bounds, keys, times


class WindowMachine(StoreMachine):
    kind = WINDOW
    model_class = WindowModel
    model: WindowModel

    @rule(key=keys, start_ms=times)
    def get(self, key: bytes, start_ms: int) -> None:
        assert self.store.fetch(key, start_ms) == self.model.get(key, start_ms)

    @rule(key=keys, first_ms=times, last_ms=times)
    def fetch_key(self, key: bytes, first_ms: int, last_ms: int) -> None:
        wanted = [(window.start_ms, held) for window, held in self.model.find(key, key, first_ms, last_ms)]
        assert list(self.store.fetch(key, first_ms, last_ms)) == wanted
        assert list(self.store.backward_fetch(key, first_ms, last_ms)) == wanted[::-1]

    @rule(start=bounds, end=bounds, first_ms=times, last_ms=times)
    def fetch_keys(self, start: bytes | None, end: bytes | None, first_ms: int, last_ms: int) -> None:
        wanted = self.model.find(start, end, first_ms, last_ms)
        assert list(self.store.fetch(start, end, first_ms, last_ms)) == wanted
        assert list(self.store.backward_fetch(start, end, first_ms, last_ms)) == wanted[::-1]

    @rule(first_ms=times, last_ms=times)
    def fetch_all(self, first_ms: int, last_ms: int) -> None:
        wanted = self.model.find(None, None, first_ms, last_ms)
        assert list(self.store.fetch_all(first_ms, last_ms)) == wanted
        assert list(self.store.backward_fetch_all(first_ms, last_ms)) == wanted[::-1]


class DuplicatesMachine(StoreMachine):
    kind = WINDOW_WITH_DUPLICATES
    model_class = DuplicatesModel
    model: DuplicatesModel

    @rule(key=DuplicatesModel.keys, start_ms=times)
    def get(self, key: bytes, start_ms: int) -> None:
        assert self.store.fetch(key, start_ms) == self.model.get(key, start_ms)

    @rule(key=DuplicatesModel.keys, first_ms=times, last_ms=times)
    def fetch_key(self, key: bytes, first_ms: int, last_ms: int) -> None:
        wanted = [
            (window.start_ms, held)
            for window, held in self.model.content()
            if window.key == key and first_ms <= window.start_ms <= last_ms
        ]
        assert list(self.store.fetch(key, first_ms, last_ms)) == wanted
        assert list(self.store.backward_fetch(key, first_ms, last_ms)) == wanted[::-1]


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = SETTINGS
TestDuplicatesMachine = DuplicatesMachine.TestCase
TestDuplicatesMachine.settings = SETTINGS
