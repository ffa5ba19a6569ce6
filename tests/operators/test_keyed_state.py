"""Values, lists and maps of keys do what Python's do, and remember what they were written with."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statestore import (
    Headers,
    KeyedList,
    KeyedMap,
    KeyedValue,
    KeyScope,
    ProcessorContext,
    Record,
    Serdes,
    ValueTimestampHeaders,
    keyed_state_store,
)
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import SerializationError
from statestore.errors.run import StateHandleError
from statestore.processor.context import TaskRecordContext
from statestore.processor.processor_metadata import ProcessorMetadata
from statestore.processor.punctuation import Punctuations

KEYS = st.lists(st.sampled_from([0, 1, 255]), max_size=3).map(bytes)
VALUES = st.integers(-3, 3)
HEADERS = Headers([("of", b"the record")])


def a_scope() -> tuple[KeyScope[bytes], ProcessorContext]:
    record_context = TaskRecordContext()
    record_context.enter_record(5, HEADERS, None)
    context = ProcessorContext("node", 0, record_context, {}, Punctuations({}), ProcessorMetadata({}), Counter())
    return KeyScope(Serdes.bytes(), context), context


def a_store(name: str) -> Any:
    return keyed_state_store(name, Serdes.int64()).build(WriteSet(MemoryByteStore(name)))


class KeyedStateMachine(RuleBasedStateMachine):
    """The states of many keys in one store each, against dicts of Python's own."""

    @initialize()
    def make(self) -> None:
        self.scope, _ = a_scope()
        self.value: KeyedValue[int] = KeyedValue(self.scope, a_store("value"))
        self.list: KeyedList[int] = KeyedList(self.scope, a_store("list"))
        self.map: KeyedMap[bytes, int] = KeyedMap(self.scope, a_store("map"), Serdes.bytes())
        self.values: dict[bytes, int] = {}
        self.lists: dict[bytes, list[int]] = {}
        self.maps: dict[bytes, dict[bytes, int]] = {}

    @rule(key=KEYS, value=VALUES)
    def update(self, key: bytes, value: int) -> None:
        with self.scope.of(key):
            self.value.update(value)
        self.values[key] = value

    @rule(key=KEYS, values=st.lists(VALUES, max_size=4))
    def append_list(self, key: bytes, values: list[int]) -> None:
        with self.scope.of(key):
            self.list.append_list(values)
        self.lists.setdefault(key, []).extend(values)

    @rule(key=KEYS, value=VALUES)
    def append_value(self, key: bytes, value: int) -> None:
        with self.scope.of(key):
            self.list.append_value(value)
        self.lists.setdefault(key, []).append(value)

    @rule(key=KEYS, values=st.lists(VALUES, max_size=4))
    def put_list(self, key: bytes, values: list[int]) -> None:
        with self.scope.of(key):
            self.list.put(values)
        self.lists[key] = values

    @rule(key=KEYS, map_key=KEYS, value=VALUES)
    def update_value(self, key: bytes, map_key: bytes, value: int) -> None:
        with self.scope.of(key):
            self.map.update_value(map_key, value)
        self.maps.setdefault(key, {})[map_key] = value

    @rule(key=KEYS, map_key=KEYS)
    def remove_key(self, key: bytes, map_key: bytes) -> None:
        with self.scope.of(key):
            self.map.remove_key(map_key)
        self.maps.get(key, {}).pop(map_key, None)

    @rule(key=KEYS)
    def clear(self, key: bytes) -> None:
        with self.scope.of(key):
            for state in (self.value, self.list, self.map):
                state.clear()
        for model in (self.values, self.lists, self.maps):
            model.pop(key, None)

    @rule(key=KEYS, map_key=KEYS)
    def look_at_one_entry(self, key: bytes, map_key: bytes) -> None:
        wanted = self.maps.get(key, {}).get(map_key)
        with self.scope.of(key):
            assert self.map.get_value(map_key) == wanted
            assert self.map.contains_key(map_key) is (wanted is not None)

    @invariant()
    def all_keys_hold_what_they_should(self) -> None:
        for key in {*self.values, *self.lists, *self.maps, b"nobody's"}:
            of_map = sorted(self.maps.get(key, {}).items())
            with self.scope.of(key):
                assert self.value.get() == self.values.get(key)
                assert self.value.exists() is (key in self.values)
                assert list(self.list.get()) == self.lists.get(key, [])
                assert [entry.value for entry in self.list.entries()] == self.lists.get(key, [])
                assert self.list.exists() is bool(self.lists.get(key))
                assert list(self.map.iterator()) == of_map
                assert list(self.map.keys()) == [map_key for map_key, _ in of_map]
                assert list(self.map.values()) == [value for _, value in of_map]
                assert self.map.exists() is bool(of_map)


TestKeyedState = KeyedStateMachine.TestCase
TestKeyedState.settings = settings(max_examples=80, stateful_step_count=25)


@pytest.fixture
def states() -> tuple[KeyScope[bytes], ProcessorContext, KeyedValue[int], KeyedList[int], KeyedMap[str, int]]:
    scope, context = a_scope()
    return (
        scope,
        context,
        KeyedValue(scope, a_store("value")),
        KeyedList(scope, a_store("list")),
        KeyedMap(scope, a_store("map"), Serdes.string()),
    )


def test_entries_have_timestamp_and_headers_of_the_record_or_those_given(states: Any) -> None:
    scope, context, value, list_state, map_state = states
    own = Headers([("own", None)])
    with scope.of(b"k"):
        value.update(1)
        assert value.entry() == ValueTimestampHeaders(1, 5, HEADERS)
        value.update(1, timestamp_ms=9, headers=own)
        assert value.entry() == ValueTimestampHeaders(1, 9, own)
        list_state.append_value(1)
        list_state.append_list([2], timestamp_ms=9, headers=own)
        with context.resumed(Record(b"k", None, 7, own), None):
            list_state.append_value(3)
        assert list(list_state.entries()) == [
            ValueTimestampHeaders(1, 5, HEADERS),
            ValueTimestampHeaders(2, 9, own),
            ValueTimestampHeaders(3, 7, own),
        ]
        list_state.put([4], timestamp_ms=1)
        assert list(list_state.entries()) == [ValueTimestampHeaders(4, 1, HEADERS)]
        map_state.update_value("m", 1)
        map_state.update_value("n", 2, timestamp_ms=9, headers=own)
        assert list(map_state.entries()) == [
            ("m", ValueTimestampHeaders(1, 5, HEADERS)),
            ("n", ValueTimestampHeaders(2, 9, own)),
        ]
        assert map_state.entry("m") == ValueTimestampHeaders(1, 5, HEADERS)


def test_iterators_show_the_state_at_their_call(states: Any) -> None:
    scope, _, _, list_state, map_state = states
    with scope.of(b"k"):
        list_state.put([1, 2])
        map_state.update_value("a", 1)
        views = list_state.get(), list_state.entries(), map_state.iterator(), map_state.keys(), map_state.values()
        list_state.clear()
        map_state.clear()
    assert [len(list(view)) for view in views] == [2, 2, 1, 1, 1]


@pytest.mark.parametrize(
    "use",
    [
        lambda value, list_state, map_state: value.get(),
        lambda value, list_state, map_state: value.update(1),
        lambda value, list_state, map_state: list_state.append_value(1),
        lambda value, list_state, map_state: list_state.get(),
        lambda value, list_state, map_state: map_state.iterator(),
        lambda value, list_state, map_state: map_state.remove_key("a"),
    ],
)
def test_a_state_without_a_key_is_refused(states: Any, use: Callable[..., Any]) -> None:
    with pytest.raises(StateHandleError, match=r"'Keyed(Value|List|Map)': no key is being processed"):
        use(*states[2:])


def test_none_is_no_value(states: Any) -> None:
    scope, _, value, list_state, map_state = states
    with scope.of(b"k"):
        for write in (
            lambda: value.update(None),
            lambda: list_state.append_value(None),
            lambda: list_state.put([1, None]),
            lambda: map_state.update_value("a", None),
        ):
            with pytest.raises(TypeError, match=r"Keyed(Value|List|Map) can't hold None"):
                write()
        with pytest.raises(TypeError, match="the key of an entry of a KeyedMap must not be None"):
            map_state.get_value(None)
        assert not list_state.exists()


def test_a_list_that_cannot_be_serialized_is_not_written_in_part(states: Any) -> None:
    scope, _, _, list_state, _ = states
    with scope.of(b"k"):
        list_state.put([1])
        with pytest.raises(SerializationError):
            list_state.append_list([2, "three"])
        with pytest.raises(SerializationError):
            list_state.put([2, "three"])
        assert list(list_state.get()) == [1]


def test_the_scope_goes_back_to_the_key_before(states: Any) -> None:
    scope, _, value, _, _ = states
    with scope.of(b"a"):
        with pytest.raises(ZeroDivisionError), scope.of(b"b"):
            value.update(1 // 0)
        value.update(1)
    with scope.of(b"a"):
        assert value.get() == 1
