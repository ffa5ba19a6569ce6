"""A state with n shards becomes one with m shards, and every entry is in the shard where it belongs."""

from pathlib import Path

import pytest

from statestore.errors import NewStateError, TargetNotEmptyError
from statestore.errors.new_state import KeyPlacementError, StateCheckError, UnknownRecordKeyError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.state_filling import ShardFilling
from statestore.recovery.metadata.state_metadata import METADATA_NAME, UNFINISHED_NAME, read_metadata
from tests.support.recovery.rescaling import KEYS, Contents, States, every_kind

GLOBAL = "rates"


def filled(home: Path, shards: int) -> States:
    """Every kind of store, keys in all shards, shards at different times."""
    states = States(home, every_kind(), shards)
    states.put_globally("eur", "1.1")
    for round_number, time_ms in enumerate((20, 60, 150)):
        touched = [(number, key) for number, key in enumerate(KEYS) if (number + round_number) % 3]
        states.put_everywhere({key: time_ms + 40 * states.shard_of(key) + number % 7 for number, key in touched})
    states.run(states.shard_of(KEYS[0]), lambda stores: stores["plain"].put(KEYS[0], None))
    return states


def together(contents: list[Contents], store: str) -> list:
    return sorted(entry for shard in contents for entry in shard[store])


@pytest.mark.parametrize(("old", "new"), [(3, 5), (5, 3), (2, 4), (4, 2), (1, 3), (3, 1), (3, 3)])
def test_every_entry_of_every_kind_of_store_is_kept(tmp_path: Path, old: int, new: int) -> None:
    states = filled(tmp_path, old)
    before = states.contents()
    kept = before if old == new else states.shown()
    report = states.rescaled(new, trust_keys=True)
    made = states.opened()
    after = made.contents()
    for store in before[0]:
        if store == GLOBAL:
            assert all(shard[store] == before[0][store] != set() for shard in after)
        else:
            assert together(after, store) == together(kept, store) != []
    for shard, contents in enumerate(after):
        for store in ("plain", "timed", "headed", "windows", "sessions", "versions", "headed-versions", "expiring"):
            assert {made.shard_of(entry.key.decode()) for entry in contents[store]} <= {shard}
        assert {entry.key[1:] for entry in contents["expiring-expiry"] if entry.key[:1] == b"k"} == {
            entry.key for entry in contents["expiring"]
        }
    assert report.stores["plain"].entries == tuple(len(shard["plain"]) for shard in after)
    assert (report.from_shards, report.shards, report.state_id) == (old, new, made.metadata.state_id)
    assert states.contents() == before


def test_the_new_state_goes_on_as_the_old_one_would(tmp_path: Path) -> None:
    states = filled(tmp_path, 3)
    states.rescaled(5)
    made = states.opened()
    for going_on in (states, made):
        going_on.put_everywhere(dict.fromkeys(KEYS, 400))
    for store in states.contents()[0]:
        if store != GLOBAL:
            assert together(made.shown(), store) == together(states.shown(), store)


def test_a_state_that_was_rescaled_can_be_rescaled_again(tmp_path: Path) -> None:
    states = filled(tmp_path, 2)
    states.rescaled(3)
    between = states.opened()
    between.pointers = {1: between.pointers[1]}  # of the others nothing is recorded: they are where they began
    between.rescaled(4, "newest")
    assert together(states.opened("newest").contents(), "headed") == together(states.contents(), "headed") != []


def test_memory_is_bounded_by_many_small_deltas(tmp_path: Path) -> None:
    states = filled(tmp_path, 2)
    report = states.rescaled(3, memory_bytes=20_000)
    assert report.deltas > 10
    assert together(states.opened().contents(), "versions") == together(states.contents(), "versions")


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    states = filled(tmp_path, 2)
    dry = states.rescaled(3, dry_run=True)
    assert not (tmp_path / "new").exists()
    report = states.rescaled(3)
    assert dry.stores == report.stores
    assert dry.state_id is None
    assert dry.entries == report.entries > 0
    assert 1.0 <= report.skew < 3.0
    assert "dry run" in str(dry)
    assert f"shard 2: {report.size_bytes[2]:,} bytes" in str(report)


def test_metadata_is_written_last_and_makes_older_releases_refuse(tmp_path: Path) -> None:
    states = filled(tmp_path, 2)
    states.rescaled(3)
    metadata = read_metadata(DurableLocation(tmp_path / "new"))
    assert metadata is not None
    assert metadata.initial_state
    assert metadata.state_id != states.metadata.state_id
    assert (metadata.stores, metadata.topology) == (states.metadata.stores, states.metadata.topology)
    assert len(set(metadata.routing)) == 3
    assert b'"format": 2' in (tmp_path / "new" / METADATA_NAME).read_bytes()
    assert b'"format": 1' in (tmp_path / "old" / METADATA_NAME).read_bytes()
    assert not (tmp_path / "new" / UNFINISHED_NAME).exists()


class Killed(Exception):
    """Stands for a process that ends."""


def test_a_rescaling_that_ended_early_left_no_state_and_the_next_one_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = filled(tmp_path, 2)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(NewState, "complete", killed)
        with pytest.raises(Killed):
            states.rescaled(7, memory_bytes=20_000)
    left_behind = set((tmp_path / "new" / "shards").rglob("*.arrow"))
    assert left_behind
    assert read_metadata(DurableLocation(tmp_path / "new")) is None
    states.rescaled(3)
    assert left_behind.isdisjoint((tmp_path / "new" / "shards").rglob("*.arrow"))
    assert together(states.opened().contents(), "timed") == together(states.contents(), "timed")


@pytest.mark.parametrize("stranger", [METADATA_NAME, "a file", "owners/query", "shards/0000/deltas/x.arrow"])
def test_a_location_that_holds_something_else_is_refused(tmp_path: Path, stranger: str) -> None:
    states = filled(tmp_path, 2)
    file = tmp_path / "new" / stranger
    file.parent.mkdir(parents=True)
    file.write_bytes(b"{}")
    with pytest.raises(TargetNotEmptyError, match=r"holds .*Give an empty one"):
        states.rescaled(3)
    assert [path for path in (tmp_path / "new").rglob("*") if path.is_file()] == [file]


def test_a_finished_state_is_not_rescaled_into(tmp_path: Path) -> None:
    states = filled(tmp_path, 2)
    states.rescaled(3)
    with pytest.raises(TargetNotEmptyError, match=r"statestore\.json"):
        states.rescaled(3)


@pytest.fixture
def by_category(tmp_path: Path) -> States:
    """A store whose keys begin with something else than the record's key."""
    states = States(tmp_path, every_kind(), 3)
    for key in KEYS[:12]:
        states.run(states.shard_of(key), lambda stores, key=key: stores["plain"].put(f"books/{key}", "1"))
    return states


def test_a_key_that_is_not_a_records_is_named_and_nothing_is_made(by_category: States, tmp_path: Path) -> None:
    with pytest.raises(KeyPlacementError, match=r"store 'plain'.*stands in shard .*key_of") as raised:
        by_category.rescaled(5)
    assert bytes.fromhex(raised.value.key).startswith(b"books/")
    assert raised.value.shard != raised.value.expected_shard
    assert read_metadata(DurableLocation(tmp_path / "new")) is None


def test_the_user_says_where_the_records_key_is(by_category: States) -> None:
    by_category.rescaled(5, key_of={"plain": lambda key: key.removeprefix(b"books/")})
    made = by_category.opened()
    keys = [[entry.key.decode() for entry in shard["plain"]] for shard in made.contents()]
    assert sorted(key for held in keys for key in held) == sorted(f"books/{key}" for key in KEYS[:12])
    assert [made.shard_of(key.removeprefix("books/")) for held in keys for key in held] == [
        shard for shard, held in enumerate(keys) for _ in held
    ]
    with pytest.raises(ValueError, match="no-such"):
        by_category.rescaled(2, "other", key_of={"no-such": bytes})


@pytest.mark.parametrize("nonsense", [lambda key: None, lambda key: 7, lambda key: key.decode("ascii")[99]])
def test_a_function_that_finds_no_key_is_named(by_category: States, nonsense: object) -> None:
    with pytest.raises((UnknownRecordKeyError, IndexError)):
        by_category.rescaled(5, key_of={"plain": nonsense})


def test_one_shard_proves_nothing_about_keys(tmp_path: Path) -> None:
    states = filled(tmp_path, 1)
    with pytest.raises(UnknownRecordKeyError, match=r"a single shard.*say so with trust_keys;"):
        states.rescaled(2)


def test_shards_by_partition_can_be_joined_and_not_divided(tmp_path: Path) -> None:
    states = States(tmp_path, every_kind(), 4, shard_by="partition")
    for shard in range(4):
        states.run(shard, lambda stores, shard=shard: stores["plain"].put(f"of {shard}", "1"))
    states.rescaled(2)
    after = [sorted(entry.key for entry in shard["plain"]) for shard in states.opened().contents()]
    assert after == [[b"of 0", b"of 2"], [b"of 1", b"of 3"]]
    with pytest.raises(NewStateError, match="by their partition"):
        states.rescaled(3, "other")


def test_keys_of_two_shards_that_would_be_one_are_refused(tmp_path: Path) -> None:
    states = States(tmp_path, every_kind(), 2, shard_by="partition")
    for shard in range(2):
        states.run(shard, lambda stores, shard=shard: stores["plain"].put("same", str(shard)))
    with pytest.raises(StateCheckError, match=r"store 'plain', shard 0: expected were 2 entries .* found were 1"):
        states.rescaled(1)
    assert read_metadata(DurableLocation(tmp_path / "new")) is None


def test_copies_of_a_global_store_that_differ_are_refused(tmp_path: Path) -> None:
    states = States(tmp_path, every_kind(), 2)
    states.run(0, lambda stores: stores["rates"].put("eur", "1"))
    states.run(1, lambda stores: stores["rates"].put("eur", "2"))
    with pytest.raises(StateCheckError, match="store 'rates'"):
        states.rescaled(3)


def test_what_was_written_is_compared_with_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = filled(tmp_path, 2)
    hold = ShardFilling._hold

    def loses_the_last(self: object, shard: int, store: str, writes: list, size_bytes: int) -> None:
        hold(self, shard, store, writes[:-1] if store == "sessions" else writes, size_bytes)

    monkeypatch.setattr(ShardFilling, "_hold", loses_the_last)
    with pytest.raises(StateCheckError, match="store 'sessions'"):
        states.rescaled(3)
    assert read_metadata(DurableLocation(tmp_path / "new")) is None
