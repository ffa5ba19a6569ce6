"""A session store does what a dict of sessions does that forgets, whatever it is made of and whatever happens to it."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from statestore import Windowed
from tests.conformance.stacks import SESSION
from tests.model.machines import SETTINGS, StoreMachine
from tests.model.models import MAX_TIME_MS, SessionModel, bounds, keys, times


class SessionMachine(StoreMachine):
    kind = SESSION
    model_class = SessionModel
    model: SessionModel

    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        sessions = sorted(self.model.held) or [Windowed(b"k", 0, 10)]
        session = data.draw(st.sampled_from(sessions), "session")
        assert self.store.fetch_session(*session) == self.model.get(session)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        sessions = sorted(self.model.held) or [Windowed(b"k", 0, 10)]
        session = data.draw(st.sampled_from(sessions), "session")
        self.store.remove(session)
        self.model.put((session.key, None, session.start_ms, session.end_ms), None)

    @rule(key=keys)
    def fetch(self, key: bytes) -> None:
        wanted = self.model.find(key, key, 0, MAX_TIME_MS)
        assert list(self.store.fetch(key)) == wanted
        assert list(self.store.backward_fetch(key)) == wanted[::-1]

    @rule(start=bounds, end=bounds, earliest_end_ms=times, latest_start_ms=times)
    def find(self, start: bytes | None, end: bytes | None, earliest_end_ms: int, latest_start_ms: int) -> None:
        wanted = self.model.find(start, end, earliest_end_ms, latest_start_ms)
        assert list(self.store.find_sessions(start, end, earliest_end_ms, latest_start_ms)) == wanted
        assert list(self.store.backward_find_sessions(start, end, earliest_end_ms, latest_start_ms)) == wanted[::-1]

    @rule(key=keys, earliest_end_ms=times, latest_start_ms=times)
    def find_of_key(self, key: bytes, earliest_end_ms: int, latest_start_ms: int) -> None:
        wanted = self.model.find(key, key, earliest_end_ms, latest_start_ms)
        assert list(self.store.find_sessions(key, earliest_end_ms, latest_start_ms)) == wanted
        assert list(self.store.backward_find_sessions(key, earliest_end_ms, latest_start_ms)) == wanted[::-1]

    @rule(first_ms=times, last_ms=times)
    def find_by_end(self, first_ms: int, last_ms: int) -> None:
        wanted = self.model.find(None, None, first_ms, MAX_TIME_MS, latest_end_ms=last_ms)
        assert list(self.store.find_sessions(first_ms, last_ms)) == wanted


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = SETTINGS
