"""A store of a view has the reads of the query's own stores, and they give what those give, of all shards together.

Which reads there are, and what they take, is asked of the classes: a new one is tried here without a change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from statestore import Headers, ResultOrder, Serdes, Windowed
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.errors import StoreError
from statestore.format.keys.partitioner import partition_of
from statestore.format.keys.window_key import encode_session_key, encode_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.stores.codec import HeldColumns
from statestore.stores.iterator import StoreIterator
from statestore.stores.session import FoundSessions, ReadOnlySessionStore
from statestore.view import StateView
from statestore.view.routed_reads import reads
from tests.conformance.stacks import KINDS, NAME, SEGMENT_MS, Kind, hold
from tests.model.models import KEYS
from tests.support.view.written_state import WrittenState

SHARDS: Final = 3
BATCHES, PUTS, READS = 3, 25, 60
CASES: Final = [
    pytest.param(kind, known, id=f"{n}-{known.name}") for n, kind in enumerate(KINDS) for known in kind.builders
]


def time_of(random: Random) -> int:
    return random.choice([random.randint(0, 120), random.randint(100, 400)])


ARGUMENTS: Final[Mapping[str, Callable[[Random], Any]]] = {
    "key": lambda random: random.choice([*KEYS, b"absent"]),
    **dict.fromkeys(("start", "end", "from_key", "to_key"), lambda random: random.choice([None, *KEYS])),
    "name": lambda random: random.choice(["trace", "trace", "other"]),
    "value": lambda random: random.choice([b"0", b"1", "2", b"absent", 1]),
    "prefix": lambda random: random.choice([b"", b"k", b"k\x00", b"\xff", b"z"]),
    "prefix_serde": lambda random: random.choice([None, Serdes.bytes()]),
    "order": lambda random: random.choice([*ResultOrder]),
    "keys": lambda random: pa.array(random.choices([*KEYS, b"absent"], k=6), pa.binary()),
    **dict.fromkeys(
        ("time_ms", "as_of_ms", "from_ms", "to_ms", "start_ms", "end_ms", "window_start_ms", "earliest_end_ms",
         "latest_end_ms", "latest_start_ms", "stream_time_ms"),
        time_of,
    ),
}  # fmt: skip
"""Makes an argument, by its name."""


def forms_of(store: Any, name: str) -> list[tuple[str, ...]]:
    """Return the names of what a read takes, in each of its forms."""
    overloaded = store._FORMS.get(name)
    if overloaded is not None:
        return list(overloaded._forms)
    return [tuple(inspect.signature(getattr(store, name)).parameters)]


def drawn(form: Sequence[str], random: Random) -> list[Any]:
    """Return an argument for each name; columns of times beside a column of keys."""
    arguments = [ARGUMENTS[name](random) for name in form]
    if form[:1] == ("keys",):
        times = [
            None if name == "stream_time_ms" else pa.array([time_of(random) for _ in arguments[0]]) for name in form[1:]
        ]
        return [arguments[0], *times]
    return arguments


def plain(found: Any) -> Any:
    """Return what a read gives in a form that can be compared."""
    if isinstance(found, StoreIterator):
        return list(found)
    if isinstance(found, HeldColumns):
        return [None if column is None else column.to_pylist() for column in found]
    if isinstance(found, FoundSessions):
        return [column.tolist() for column in found[:3]] + [plain(found.held)]
    return found


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return plain(read())
    except (TypeError, ValueError, StoreError) as refused:
        return type(refused), str(refused)


def place_of(store: Any, entry: Any) -> bytes:
    """Return where an entry of a scan is in the order of one store."""
    key = entry[0]
    if not isinstance(key, Windowed):
        assert isinstance(key, bytes)
        return key
    if isinstance(store, ReadOnlySessionStore):
        physical = encode_session_key(key.key, key.start_ms, key.end_ms)
        return segment_prefix(key.end_ms // SEGMENT_MS) + physical
    return segment_prefix(key.start_ms // SEGMENT_MS) + encode_window_key(key.key, key.start_ms)


def expected(own: list[Any], name: str, form: Sequence[str], arguments: list[Any]) -> Any:
    """Return what a read of all shards must give, by those of the query's own stores in each of them."""

    def shard_of(key: bytes) -> int:
        return partition_of(key, SHARDS)

    if form[:1] == ("key",):
        return plain(getattr(own[shard_of(arguments[0])], name)(*arguments))
    answers = [getattr(store, name)(*arguments) for store in own]
    if form[:1] == ("keys",):
        shards = [shard_of(key) for key in arguments[0].to_pylist()]
        if isinstance(answers[0], FoundSessions):
            rows = [
                (row, *each)
                for row, shard in enumerate(shards)
                for each in zip(*rows_of(answers[shard]), strict=True)
                if each[0] == row
            ]
            return [row[1:] for row in rows]
        return [
            None if column[0] is None else [column[shard][row] for row, shard in enumerate(shards)]
            for column in zip(*map(plain, answers), strict=True)
        ]
    if isinstance(answers[0], int):
        return sum(answers)
    if name == "range_values":
        values = [entry for store in own for entry in store.range(*arguments)]
        return [value_of(held) for _, held in sorted(values, key=lambda entry: entry[0])]
    entries = [entry for answer in answers for entry in answer]
    is_backward = name.startswith(("backward", "reverse"))
    if is_backward:  # a sort keeps the order of what is in one place
        entries = sorted(entries[::-1], key=partial(place_of, own[0]))[::-1]
        return entries
    return sorted(entries, key=partial(place_of, own[0]))


def value_of(held: Any) -> Any:
    return getattr(held, "value", held)


def rows_of(found: FoundSessions) -> list[Any]:
    columns = [each for each in plain(found.held) if each is not None]
    return [found.rows.tolist(), found.start_ms.tolist(), found.end_ms.tolist(), *columns]


def write(kind: Kind, known: StoreFormat, random: Random) -> Callable[[int, Any], None]:
    """Put random entries, each into the shard of its key."""
    keys = [key for key in KEYS if len(key) == 1] if kind is KINDS[2] else KEYS
    entries = []
    for _ in range(PUTS):
        start_ms = time_of(random)
        entries.append(
            (random.choice(keys), random.choice([None, *range(9)]), start_ms, start_ms + random.randint(0, 60))
        )

    def put(shard: int, stores: Any) -> None:
        store = stores[NAME]
        for number, (key, value, start_ms, end_ms) in enumerate(entries):
            if partition_of(key, SHARDS) == shard:
                times = {0: (), 3: (start_ms, end_ms)}.get(KINDS.index(kind), (start_ms,))
                headers = Headers([("trace", b"%d" % (number % 3))])
                kind.put(store, lambda held, n=number, h=headers: hold(known, held, n, h), (key, value, *times))

    return put


@pytest.mark.parametrize(("kind", "known"), CASES)
def test_every_read_gives_what_the_querys_own_stores_give(kind: Kind, known: StoreFormat, tmp_path: Path) -> None:
    random = Random(f"{KINDS.index(kind)} {known}")
    # Of a half nobody has said that its keys are those of records, and of some of these not even that there are any.
    knows_keys, by = known in (max(kind.builders), StoreFormat.TIMESTAMPED), "key" if kind is KINDS[0] else "partition"
    builder = kind.builder(known).with_header_index("trace") if known.has_headers else kind.builder(known)
    shard_by = "key" if knows_keys else by
    state = WrittenState(tmp_path, builder, shards=SHARDS, knows_keys=knows_keys, shard_by=shard_by)
    state.publish()
    tried = set()
    with StateView(state.location) as view:
        store = view.store(NAME, value_serde=Serdes.int64())
        for batch in range(BATCHES + 1):
            with state.own_stores() as stores:
                own = [each[NAME].read_only() for each in stores]
                assert isinstance(store, type(own[0]))
                assert store.stream_time_ms == (own[0].stream_time_ms and max(each.stream_time_ms for each in own))
                for name in reads(type(own[0])):
                    for form in forms_of(own[0], name):
                        for _ in range(1 if name.startswith("approximate") else READS // (1 + batch)):
                            arguments = drawn(form, random)
                            wanted = outcome(partial(expected, own, name, form, arguments))
                            read = partial(getattr(store, name), *arguments)
                            if name == "find_sessions_many":
                                assert list(zip(*rows_of(read()), strict=True)) == wanted, arguments
                            elif name.startswith("approximate"):
                                assert 0 <= read() <= 2 * BATCHES * PUTS  # an estimate
                            else:
                                assert outcome(read) == wanted, (name, form, arguments)
                            tried.add(name)
            if batch < BATCHES:
                state.batch(write(kind, known, random), shards=random.sample(range(SHARDS), 1 + batch))
                assert view.refresh()
    assert tried == {*reads(type(own[0]))}
