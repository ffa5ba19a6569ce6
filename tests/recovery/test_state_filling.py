"""A state that a tool makes of entries: whole or not there, checked, and taken over by the first query."""

from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors import (
    FormatError,
    ShardCountChangedError,
    StoreFormatError,
    TargetNotEmptyError,
    TopologyChangedError,
)
from statestore.errors.new_state import StateCheckError
from statestore.errors.state import StateUnfinishedError
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.commit.pointer import initial_pointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.state_filling import ShardFilling
from statestore.recovery.metadata.state_metadata import (
    METADATA_NAME,
    UNFINISHED_NAME,
    StateMetadata,
    agree_on_metadata,
    metadata_of_stores,
    read_metadata,
)
from statestore.recovery.shard_batch import ShardedState
from tests.support.golden.tool_made import HEADERS, STORES, TOTALS, WINDOWS, filling_of, writes_of
from tests.support.recovery import MAX_BYTES

GOLDEN = Path(__file__).parents[1] / "golden" / "tool-made-1"
NODE = {"name": "node", "type": "processor", "parents": [], "stores": [spec.name for spec in STORES]}


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path / "state")


@pytest.fixture
def metadata() -> StateMetadata:
    return metadata_of_stores(STORES, 3, "key")


@pytest.fixture
def made(location: DurableLocation, metadata: StateMetadata) -> NewState:
    """The state, claimed for a test."""
    return NewState.claim(location, metadata, "a test")


def contents(
    location: DurableLocation, metadata: StateMetadata, shard: int, home: Path
) -> dict[str, list[LogicalWrite]]:
    """Return what a shard holds, from where it starts."""
    pointer = initial_pointer(location, metadata.state_id, shard)
    state = ShardedState(metadata.state_id, location, metadata.stores, LocalDirectory(str(home)))
    with state.open(pointer) as batch:
        return {
            name: [
                write
                for step in logical_writes(store.spec, store.bytes, pointer.store_times_ms.get(name, -1))
                for write in step
            ]
            for name, store in batch.stores.items()
        }


def test_what_was_filled_is_the_state(
    made: NewState, location: DurableLocation, metadata: StateMetadata, tmp_path: Path
) -> None:
    filled = filling_of(made).shards()
    assert [shard.entries for shard in filled] == [6, 6, 6]
    for shard in filled:
        replace(made, work_dir=str(tmp_path)).check(shard)
    assert read_metadata(location) is None, "it is no state yet"
    with pytest.raises(StateUnfinishedError, match="is being filled with a state made of a test"):
        agree_on_metadata(location, StateMetadata("query", 3, "key", (7, 8, 9), STORES, (NODE,)))
    made.complete(filled)
    assert read_metadata(location) == metadata
    assert not location.names(UNFINISHED_NAME)
    for shard in range(3):
        assert contents(location, metadata, shard, tmp_path / "local") == writes_of(shard)
    assert initial_pointer(location, metadata.state_id, 1).store_times_ms == {
        "windows": 60_005,
        "sessions": 60_012,
        "versions": 60_007,
    }


def test_a_tool_made_state_of_format_1_is_read(tmp_path: Path) -> None:
    location = DurableLocation(GOLDEN)
    metadata = read_metadata(location)
    assert metadata is not None
    assert metadata == replace(
        metadata_of_stores(STORES, 2, "partition"), state_id=metadata.state_id, routing=metadata.routing
    )
    assert [contents(location, metadata, shard, tmp_path) for shard in range(2)] == [writes_of(0), writes_of(1)]


def test_shards_that_got_nothing_begin_empty(
    made: NewState, location: DurableLocation, metadata: StateMetadata, tmp_path: Path
) -> None:
    filling = made.filling()
    filling.put(1, "totals", writes_of(1)["totals"])
    filling.put(2, "totals", [])
    made.complete(filling.shards())
    assert [len(contents(location, metadata, shard, tmp_path)["totals"]) for shard in range(3)] == [0, 1, 0]


def test_a_stream_time_stays_whose_entry_is_gone(
    made: NewState, location: DurableLocation, metadata: StateMetadata, tmp_path: Path
) -> None:
    filling = made.filling()
    filling.put(1, "windows", writes_of(1)["windows"])
    filling.advance_stream_time(1, "windows", 70_000)
    filling.advance_stream_time(1, "sessions", 80_000)
    filling.advance_stream_time(2, "windows", 90_000)
    made.complete(made.read_back(filling))
    times = [initial_pointer(location, metadata.state_id, shard).store_times_ms for shard in range(3)]
    assert times == [{}, {"windows": 70_000, "sessions": 80_000}, {"windows": 90_000}]
    assert contents(location, metadata, 1, tmp_path)["windows"] == writes_of(1)["windows"]
    assert contents(location, metadata, 2, tmp_path)["windows"] == []


def test_two_entries_with_one_key_are_found(location: DurableLocation, metadata: StateMetadata) -> None:
    made = NewState(location, metadata)
    filling = made.filling()
    filling.put(0, "totals", writes_of(0)["totals"] * 2)
    (filled,) = filling.shards()
    with pytest.raises(StateCheckError, match=r"expected were 2 entries .* found were 1 entries"):
        made.check(filled)


def test_a_window_key_that_is_none_is_refused(location: DurableLocation, metadata: StateMetadata) -> None:
    with pytest.raises(FormatError, match="window key"):
        ShardFilling(location, metadata).put(0, "windows", [LogicalWrite(b"short", HEADERS, None)])


def test_a_shard_is_filled_once(location: DurableLocation, metadata: StateMetadata) -> None:
    made = NewState(location, metadata)
    filled = filling_of(made).shards()
    with pytest.raises(ValueError, match="filled twice"):
        made.complete([*filled, filled[0]])
    assert read_metadata(location) is None


def test_what_was_left_half_filled_is_cleared(location: DurableLocation, metadata: StateMetadata) -> None:
    filling_of(NewState.claim(location, metadata, "a test")).flush()
    made = NewState.claim(location, metadata, "another")
    assert not location.names("shards/0000/deltas")
    made.complete([])
    with pytest.raises(TargetNotEmptyError, match=r"statestore\.json"):
        NewState.claim(location, metadata, "a third")


def test_of_two_that_fill_a_location_the_first_makes_no_state(location: DurableLocation) -> None:
    first = NewState.claim(location, metadata_of_stores(STORES, 3, "key"), "one")
    filled = filling_of(first).shards()
    second = NewState.claim(location, metadata_of_stores(STORES, 3, "key"), "two")
    with pytest.raises(TargetNotEmptyError, match="meanwhile"):
        first.complete(filled)
    second.complete(filling_of(second).shards())
    with pytest.raises(TargetNotEmptyError, match="meanwhile"):
        second.complete([])
    assert read_metadata(location) == second.metadata


def test_a_request_that_was_interrupted_goes_on_behind_the_shards_that_it_kept(
    location: DurableLocation, tmp_path: Path
) -> None:
    begun = NewState.claim(location, metadata_of_stores(STORES, 3, "key"), "a directory", request="the request")
    first, second, _ = filling_of(begun).shards()
    begun.keep(first)
    asked = metadata_of_stores(STORES, 3, "key")
    assert NewState.resume(location, asked, "another") is None
    resumed = NewState.resume(location, asked, "the request", work_dir=str(tmp_path))
    assert resumed == replace(begun, work_dir=str(tmp_path), kept=frozenset({0})), "it is the state that was begun"
    for shard, left in ((0, len(first.start.deltas)), (1, 0), (2, 0)):
        assert len(location.names(f"shards/000{shard}/deltas")) == left
    assert second.start.deltas
    for filled in filling_of(resumed).shards()[1:]:
        resumed.keep(filled)
    resumed.complete(None)
    assert read_metadata(location) == begun.metadata
    for shard in range(3):
        assert contents(location, begun.metadata, shard, tmp_path / "local") == writes_of(shard)


def test_a_claim_that_ended_while_it_cleared_is_made_anew(
    location: DurableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it found there is not what the request has kept."""
    before = NewState.claim(location, metadata_of_stores(STORES, 3, "key"), "a directory")
    for filled in filling_of(before).shards():
        before.keep(filled)
    asked = metadata_of_stores(STORES, 3, "key")
    with monkeypatch.context() as patched:
        patched.setattr(DurableLocation, "delete_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            NewState.claim(location, asked, "another", request="the request")
    assert NewState.resume(location, asked, "the request") is None
    NewState.claim(location, asked, "another", request="the request").complete([])
    assert read_metadata(location) == asked
    assert not location.names("shards/0000/deltas")


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_counted_only_is_written_nowhere(metadata: StateMetadata, location: DurableLocation) -> None:
    """A dry run says the same as the run."""
    counted, written = ShardFilling(None, metadata), ShardFilling(location, metadata)
    for filling in (counted, written):
        filling.put(1, "totals", writes_of(1)["totals"])
    assert counted.shard(1).tallies == written.shard(1).tallies
    assert (counted.shard(1).start.deltas, len(written.shard(1).start.deltas)) == ((), 1)


def test_what_became_another_state_is_not_taken_for_the_one_that_was_begun(location: DurableLocation) -> None:
    """A query of an older release was started there, which did not look at the mark."""
    begun = metadata_of_stores(STORES, 3, "key")
    NewState.claim(location, begun, "a directory", request="the request")
    other = metadata_of_stores(STORES, 3, "key")
    location.write(METADATA_NAME, other.to_json().encode())
    with pytest.raises(TargetNotEmptyError, match="another state than was begun"):
        NewState.resume(location, begun, "the request")
    location.write(METADATA_NAME, begun.to_json().encode())
    resumed = NewState.resume(location, begun, "the request")
    assert resumed is not None
    assert resumed.is_complete


class TestFirstStart:
    """The first query that starts on such a state."""

    @pytest.fixture
    def made(self, location: DurableLocation, metadata: StateMetadata) -> StateMetadata:
        new = NewState.claim(location, metadata, "a test")
        new.complete(filling_of(new).shards())
        return metadata

    @pytest.fixture
    def asked(self) -> StateMetadata:
        return StateMetadata("query", 3, "key", (7, 8, 9), STORES, (NODE,), wall_clock=True)

    def test_takes_the_state_and_records_the_rest(
        self, location: DurableLocation, made: StateMetadata, asked: StateMetadata
    ) -> None:
        settled = agree_on_metadata(location, asked)
        assert settled == replace(asked, state_id=made.state_id, initial_state=True, generation=1)
        assert read_metadata(location) == settled
        assert agree_on_metadata(location, replace(asked, routing=(1, 2, 3))) == settled, (
            "the second start changes nothing"
        )

    def test_may_ask_for_a_newer_format(self, location: DurableLocation, asked: StateMetadata) -> None:
        legacy = [replace(spec, format=StoreFormat.PLAIN) for spec in (TOTALS, WINDOWS)]
        made = metadata_of_stores(legacy, 3, "key")
        NewState.claim(location, made, "a test").complete([])
        with pytest.raises(StoreFormatError, match=r"with_upgrade_through_timestamped\(\)"):
            agree_on_metadata(location, replace(asked, stores=(TOTALS, WINDOWS)))
        allowed = tuple(replace(spec, through_timestamped=True) for spec in (TOTALS, WINDOWS))
        settled = agree_on_metadata(location, replace(asked, stores=allowed))
        assert settled.stores == (TOTALS, WINDOWS)
        assert agree_on_metadata(location, replace(asked, stores=(TOTALS, WINDOWS))) == settled, "said once is enough"

    @pytest.mark.usefixtures("made")
    def test_is_refused_with_another_number_of_shards(self, location: DurableLocation, asked: StateMetadata) -> None:
        with pytest.raises(ShardCountChangedError):
            agree_on_metadata(location, replace(asked, shards=4))
        with pytest.raises(TopologyChangedError, match="placed by key, now by partition"):
            agree_on_metadata(location, replace(asked, shard_by="partition"))

    @pytest.mark.usefixtures("made")
    def test_is_refused_without_one_of_the_stores(self, location: DurableLocation, asked: StateMetadata) -> None:
        with pytest.raises(TopologyChangedError, match=r"'totals'.*is gone"):
            agree_on_metadata(location, replace(asked, stores=STORES[1:]))
        changed = replace(WINDOWS, window_size_ms=20_000)
        with pytest.raises(StoreFormatError, match="windows of 20000 ms"):
            agree_on_metadata(location, replace(asked, stores=(STORES[0], changed, *STORES[2:])))

    def test_is_told_of_what_changes_afterwards(
        self, location: DurableLocation, made: StateMetadata, asked: StateMetadata
    ) -> None:
        agree_on_metadata(location, asked)
        with pytest.raises(TopologyChangedError):
            agree_on_metadata(location, replace(asked, topology=(NODE, {**NODE, "name": "other"})))
        recorded = location.read(METADATA_NAME, MAX_BYTES)
        assert recorded is not None
        assert made.state_id.encode() in recorded.to_pybytes()
