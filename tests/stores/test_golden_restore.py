"""What is restored from Kafka's changelogs is what Kafka Streams 4.3.1 restores from them."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from statestore import Headers
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.format.keys.window_key import split_session_key, split_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored, split_stored
from statestore.format.values.versioned_row import decode_segment_row
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import ChangelogRecord, batch_changelog, restored_changes
from statestore.recovery.commit.delta import DeltaInfo, encode_delta
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import CommittedStore, restore
from tests.support.golden.kafka_streams import FIXTURES, Fixture, load_fixture
from tests.support.golden.replay import ENGINES, Engine, Families, families_of, family_of, records_of, spec_of

RESTORED = [name for name in FIXTURES if load_fixture(name).restored is not None]
VERSIONED = "versioned"
NOT_VERSIONED = [name for name in RESTORED if name != VERSIONED]
# The first session wrote plain values, the second one timestamps: Kafka gives the former those of their records.
PLAIN_GIVEN_TIMESTAMPS = ["headers-kv-from-plain", "headers-window-from-plain", "ts-kv-from-plain"]
LEGACY = ["kv", "ts-kv", "window", "ts-window", "window-dup", "session", VERSIONED]
NO_HEADERS, UNKNOWN_TIMESTAMP = b"\x00", b"\xff" * 8


class Session(NamedTuple):
    """What a session left in the changelog: records of a store of this format."""

    format: StoreFormat
    records: list[ChangelogRecord]


@pytest.fixture(params=["rocksdb", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return ENGINES[request.param](tmp_path)


def sessions_of(golden: Fixture) -> list[Session]:
    return [
        Session(spec_of(session["openedAs"]).format, records_of(session["changelog"]))
        for session in golden.fixture["sessions"]
    ]


def time_ms_of(spec: StoreSpec, record: ChangelogRecord) -> int:
    if spec.kind is StoreKind.WINDOW:
        return split_window_key(record.key)[1]
    return split_session_key(record.key)[2] if spec.kind is StoreKind.SESSION else record.timestamp_ms


def restore_deltas(engine: Engine, spec: StoreSpec, sessions: list[Session], home: Path) -> Families:
    """Restore the store from a delta for each session, as a worker does that has no copy."""
    location = DurableLocation(home / "state")
    pointer = CommitPointer("golden", 0)
    time_ms = -1
    for session in sessions:
        changelog, context = batch_changelog(spec_as(spec, session.format)), TaskRecordContext()
        for record in session.records:
            context.timestamp_ms, context.headers = record.timestamp_ms, Headers.from_bytes(record.header_bytes)
            stored = join_stored(session.format, record.value, record.timestamp_ms, record.header_bytes)
            changelog.append(record.key, stored, context, record.timestamp_ms)
        version = pointer.version + 1
        data, _ = encode_delta(DeltaInfo("golden", 0, version), {spec.name: changelog}, {spec.name: time_ms})
        location.write(f"{version}.delta", data)
        time_ms = max(time_ms, *(time_ms_of(spec, record) for record in session.records))
        pointer = pointer.advance(
            DurableFile(f"{version}.delta", data.size, digest(data)),
            BatchEnd(0, time_ms, {spec.name: time_ms} if spec.kind.is_segmented else {}),
        )
    with SpillSpace(home / "spill", MemoryBudget()) as space:
        restore(location, pointer, 0, {spec.name: CommittedStore(spec, engine.open(spec))}, space)
    engine.close()
    return engine.families()


def spec_as(spec: StoreSpec, store_format: StoreFormat) -> StoreSpec:
    recorded = {**spec.to_json(), "format": store_format.name}
    return StoreSpec.from_json(recorded)


def test_every_fixture_with_a_changelog_is_restored() -> None:
    assert len(RESTORED) == 21
    written_as = {name: sessions_of(load_fixture(name))[0].format for name in NOT_VERSIONED}
    now = {name: spec_of(load_fixture(name).fixture["kind"]).format for name in NOT_VERSIONED}
    gain_timestamps = (StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_WITH_HEADERS)
    assert [
        name for name in NOT_VERSIONED if written_as[name] is StoreFormat.PLAIN and now[name] in gain_timestamps
    ] == PLAIN_GIVEN_TIMESTAMPS


@pytest.mark.parametrize("name", sorted(set(NOT_VERSIONED) - set(PLAIN_GIVEN_TIMESTAMPS)))
def test_the_restored_bytes_are_kafkas(engine: Engine, name: str, tmp_path: Path) -> None:
    golden = load_fixture(name)
    spec = spec_of(golden.fixture["kind"])
    assert restore_deltas(engine, spec, sessions_of(golden), tmp_path) == families_of(golden.restored)


@pytest.mark.parametrize("name", PLAIN_GIVEN_TIMESTAMPS)
def test_plain_values_are_restored_as_an_upgrade_in_place_makes_them(engine: Engine, name: str, tmp_path: Path) -> None:
    golden = load_fixture(name)
    spec = spec_of(golden.fixture["kind"])
    families = restore_deltas(engine, spec, sessions_of(golden), tmp_path)
    # Kafka gives them the timestamps of their records, so what it restores differs from what it upgrades. Ours is one:
    # a plain value has the timestamp -1 either way.
    before = families_of(golden.raw)
    plain, upgraded = before.pop("default"), before[family_of(spec)]
    prefix = (
        NO_HEADERS + UNKNOWN_TIMESTAMP if spec.format is StoreFormat.TIMESTAMPED_WITH_HEADERS else UNKNOWN_TIMESTAMP
    )
    assert families == {family_of(spec): {**upgraded, **{key: prefix + value for key, value in plain.items()}}}
    # The timestamp is all that Kafka's differs in.
    ours, kafkas = families[family_of(spec)], families_of(golden.restored)[family_of(spec)]
    assert timeless(spec, ours) == timeless(spec, kafkas)
    differing = {key for key in ours if ours[key] != kafkas[key]}
    assert differing >= plain.keys()
    assert all(split_stored(spec.format, ours[key]).timestamp_ms == -1 for key in differing)


def timeless(spec: StoreSpec, entries: dict[bytes, bytes]) -> Any:
    return {key: split_stored(spec.format, stored)._replace(timestamp_ms=None) for key, stored in entries.items()}


@pytest.mark.parametrize("name", sorted(set(NOT_VERSIONED) - set(PLAIN_GIVEN_TIMESTAMPS)))
def test_every_record_in_order_makes_the_same_as_the_last_ones(engine: Engine, name: str) -> None:
    golden = load_fixture(name)
    spec = spec_of(golden.fixture["kind"])
    store = engine.open(spec)
    for session in sessions_of(golden):
        store.write(restored_changes(spec, session.format, session.records))
    if spec.kind.is_segmented:
        last_ms = max(time_ms_of(spec, record) for session in sessions_of(golden) for record in session.records)
        store.delete_below(segment_prefix(Segments(store, *spec.retention, last_ms).first_live))
    engine.close()
    assert engine.families() == families_of(golden.restored)


@pytest.mark.parametrize("deltas", ["one delta", "a delta for each record"])
def test_versions_are_restored_as_they_were_put(engine: Engine, deltas: str, tmp_path: Path) -> None:
    golden = load_fixture(VERSIONED)
    (session,) = sessions_of(golden)
    sessions = [session] if deltas == "one delta" else [Session(session.format, [one]) for one in session.records]
    families = restore_deltas(engine, spec_of(VERSIONED), sessions, tmp_path)
    assert families == families_of(golden.raw)
    # Kafka leaves out what the last stream time of the batch makes too old, though it was not when it was put: here the
    # version of ffff that a tombstone at 95000 ends, in a segment that lives. Ours puts each at the time it was put.
    skipped = segment_prefix(1) + b"\xff\xff"
    ours, kafkas = families["default"], families_of(golden.restored)["default"]
    assert {key for key in ours if ours[key] != kafkas.get(key)} == {skipped}
    assert ours.keys() == kafkas.keys()
    (version,) = decode_segment_row(ours[skipped]).versions
    assert (version.valid_from_ms, version.value is None) == (40_000, False)
    (tombstone,) = decode_segment_row(kafkas[skipped]).versions
    assert (tombstone.valid_from_ms, tombstone.value) == (95_000, None)


@pytest.mark.parametrize("name", LEGACY)
def test_a_legacy_changelog_restores_a_store_with_headers(engine: Engine, name: str, tmp_path: Path) -> None:
    golden = load_fixture(name)
    legacy, spec = spec_of(name), spec_of(f"headers-{name.removeprefix('ts-')}")
    families = restore_deltas(engine, spec, sessions_of(golden), tmp_path)
    assert families.keys() == {family_of(spec)}
    if name == VERSIONED:
        assert_versions_without_headers(families[family_of(spec)], families_of(golden.raw)[family_of(legacy)])
        return
    plain_gains_time = spec.format is StoreFormat.TIMESTAMPED_WITH_HEADERS and legacy.format is StoreFormat.PLAIN
    prefix = NO_HEADERS + (UNKNOWN_TIMESTAMP if plain_gains_time else b"")
    restored = families_of(golden.restored)[family_of(legacy)]
    assert families[family_of(spec)] == {key: prefix + value for key, value in restored.items()}


def assert_versions_without_headers(restored: dict[bytes, bytes], legacy: dict[bytes, bytes]) -> None:
    assert restored.keys() == legacy.keys()
    for key, row in restored.items():
        if key.startswith(segment_prefix(-1)):
            assert row == legacy[key][:8] + NO_HEADERS + legacy[key][8:]
            continue
        ours, kafkas = decode_segment_row(row), decode_segment_row(legacy[key])
        assert ours.next_timestamp_ms == kafkas.next_timestamp_ms
        assert ours.versions == [
            (start_ms, None if value is None else NO_HEADERS + value) for start_ms, value in kafkas.versions
        ]
