"""Changelog records become the task directories that Kafka Streams restores from them; what is none is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import TargetNotEmptyError
from statestore.errors.new_state import DirectoryInUseError
from statestore.format.keys.window_key import encode_window_key
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.stored_value import split_stored
from statestore.recovery.commit.changelog import ChangelogRecord
from tests.support.golden.kafka_streams import FIXTURES, Fixture, dump_task_directory, load_fixture
from tests.support.golden.replay import families_of, family_of, records_of, spec_of
from tests.support.java.reader import ReadRequest, read_with_kafka_streams
from upgrade_tools.changelogs import restoring
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.in_order_of_time import in_order_of_time
from upgrade_tools.changelogs.logs import LogRecord, PartitionLog
from upgrade_tools.changelogs.reading import ChangelogTopic
from upgrade_tools.changelogs.restoring import RestoredStore, restore_task_directory
from upgrade_tools.changelogs.state_records import StoreRecords, differences, missing_records
from upgrade_tools.changelogs.to_directories import restore_directories
from upgrade_tools.errors import ChangelogDamagedError
from upgrade_tools.migration.locks import lock_workspace
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import StateOptions
from upgrade_tools.states.store_argument import StoreArgument

RESTORED = [name for name in FIXTURES if load_fixture(name).restored is not None]
APPLICATION = "golden"
KEY_VALUE, WINDOW, SESSION, VERSIONED = (spec_of(kind) for kind in ("headers-kv", "window", "session", "versioned"))


def records_in(golden: Fixture) -> list[ChangelogRecord]:
    return [record for session in golden.fixture["sessions"] for record in records_of(session["changelog"])]


def log_of(records: Iterable[ChangelogRecord], *, first: int = 0, step: int = 1) -> list[LogRecord]:
    return [LogRecord(first + step * number, record) for number, record in enumerate(records)]


def restore(
    task: Path, spec: StoreSpec, records: Sequence[LogRecord], *, end: int | None = None, may_have_gaps: bool = True
) -> RestoredStore:
    end = records[-1].offset + 1 if end is None else end
    log = PartitionLog(f"{APPLICATION}-store-changelog", 0, 0, end, may_have_gaps)
    return restore_task_directory(task, APPLICATION, {spec: (log, records)})["store"]


def records_of_state(task: Path, spec: StoreSpec) -> list[ChangelogRecord]:
    with open_state(str(task), StateOptions()).open(0, [spec]) as stores:
        return list(StoreRecords(spec, [stores["store"].bytes], -1))


def put(key: bytes, value: bytes | None = b"v", timestamp_ms: int = 5, **headers: bytes) -> ChangelogRecord:
    return ChangelogRecord(key, value, timestamp_ms, encode_headers(headers.items()))


@pytest.mark.parametrize("name", sorted({*RESTORED} - {"versioned"}))
@pytest.mark.parametrize("at_once", [3, 5_000])
def test_what_is_restored_is_what_kafka_streams_restores(
    name: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "_RECORDS_AT_ONCE", at_once)
    golden = load_fixture(name)
    spec = spec_of(golden.fixture["kind"])
    # Under the kind that it has now, whatever it had when the records were written: so does Kafka Streams.
    restore(tmp_path / "0_0", spec, log_of(records_in(golden)))
    assert families_of(dump_task_directory(tmp_path / "0_0")) == families_of(golden.restored)


def test_versions_are_restored_as_they_were_put(tmp_path: Path) -> None:
    golden = load_fixture("versioned")
    restore(tmp_path / "0_0", VERSIONED, log_of(records_in(golden)))
    # All that the store had. Kafka Streams leaves out one version more: of what its batch as a whole makes too old.
    assert families_of(dump_task_directory(tmp_path / "0_0")) == families_of(golden.raw)


@pytest.mark.usefixtures("java")
def test_kafka_streams_opens_what_was_restored(tmp_path: Path) -> None:
    requests = []
    for name in RESTORED:
        golden = load_fixture(name)
        task = tmp_path / name / APPLICATION / "0_0"
        restore(task, spec_of(golden.fixture["kind"]), log_of(records_in(golden), step=2))
        options = {"retentionMs": 120_000, "windowSizeMs": 10_000, "segmentIntervalMs": 60_000}
        requests.append(ReadRequest(task, golden.fixture["kind"], options={**options, "historyRetentionMs": 300_000}))
    for name, answer in zip(RESTORED, read_with_kafka_streams(requests), strict=True):
        golden = load_fixture(name)
        assert answer["committedOffset"] == 2 * (len(records_in(golden)) - 1), name
        keys = [(entry["key"], entry.get("start")) for entry in golden.logical["entries"]]
        if "window-dup" in name:  # the log counts duplicates otherwise than the store does
            keys, answer["entries"] = sorted({*keys}), sorted({(e["key"], e["start"]): e for e in answer["entries"]})
            assert answer["entries"] == keys, name
        else:
            assert [(entry["key"], entry.get("start")) for entry in answer["entries"]] == keys, name


def test_records_are_sorted_by_their_times_in_more_writes_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upgrade_tools.changelogs.in_order_of_time._ROWS_PER_WRITE", 3)
    records = [put(b"%d" % number, None if number % 3 else b"v", 100 - number // 2) for number in range(20)]
    with in_order_of_time(records, str(tmp_path)) as found:
        assert list(found) == sorted(records, key=lambda record: record.timestamp_ms)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "family"), [("ts-kv", "keyValueWithTimestamp"), ("kv", "default")])
def test_a_store_without_headers_comes_from_the_same_changelog(kind: str, family: str, tmp_path: Path) -> None:
    golden = load_fixture("headers-kv")
    restore(tmp_path / "0_0", spec_of(kind), log_of(records_in(golden)))
    restored = families_of(dump_task_directory(tmp_path / "0_0"))
    with_headers = families_of(golden.restored)[family_of(KEY_VALUE)]
    parts = {key: split_stored(KEY_VALUE.format, stored) for key, stored in with_headers.items()}
    expected = {
        key: value if kind == "kv" else timestamp_ms.to_bytes(8, "big", signed=True) + value
        for key, (value, timestamp_ms, _) in parts.items()
        if timestamp_ms is not None
    }
    assert restored == {family: expected}


def test_the_changelog_offset_is_that_of_the_last_record(tmp_path: Path) -> None:
    restored = restore(tmp_path / "0_0", KEY_VALUE, log_of([put(b"a"), put(b"b")], first=7, step=3), end=20)
    assert (restored.records, restored.last_offset) == (2, 10)
    with TaskDirectory(tmp_path / "0_0", APPLICATION) as task:
        task.open_store(KEY_VALUE)
        assert task.changelog_offset("store") == 10
        assert task.was_closed_cleanly("store")


def test_windows_older_than_the_retention_are_left_out(tmp_path: Path) -> None:
    records = [put(encode_window_key(b"k", start_ms)) for start_ms in (0, 500_000, 100_000, 400_000)]
    restored = restore(tmp_path / "0_0", WINDOW, log_of(records))
    assert restored.stream_time_ms == 500_000
    assert sorted(path.name for path in (tmp_path / "0_0" / "store").iterdir()) == ["store.360000", "store.480000"]


@pytest.mark.parametrize(
    ("deleted_before_ms", "is_refused"), [(None, False), (380_001, False), (380_002, True), (10**12, True)]
)
def test_windows_that_the_broker_has_deleted_must_have_expired(
    deleted_before_ms: int | None, *, is_refused: bool, tmp_path: Path
) -> None:
    log = PartitionLog("t", 0, 7, 8, True, deleted_before_ms)
    sources = {WINDOW: (log, [LogRecord(7, put(encode_window_key(b"k", 500_000)))])}
    assert restore_task_directory(tmp_path / "any", APPLICATION, sources, accept_deleted=True)["store"].records == 1
    with pytest.raises(ChangelogDamagedError, match="up to offset 6") if is_refused else nullcontext():
        restore_task_directory(tmp_path / "0_0", APPLICATION, sources)


def test_of_windows_that_were_all_deleted_nothing_says_that_they_had_expired(tmp_path: Path) -> None:
    sources = {WINDOW: (PartitionLog("t", 0, 5, 5, True, 10**12), ())}
    with pytest.raises(ChangelogDamagedError, match=r"nothing is left.*--accept-deleted"):
        restore_task_directory(tmp_path / "0_0", APPLICATION, sources)


class TestDirectories:
    """Where the directories of all tasks are made."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "made"

    @pytest.fixture
    def unfinished(self, tmp_path: Path) -> Path:
        return tmp_path / ".made.unfinished"

    def make(self, target: Path) -> list[str]:
        changelog = ChangelogTopic(KEY_VALUE, "t", tuple(PartitionLog("t", n, 0, 0, False) for n in range(2)))
        restore_directories(Cluster("127.0.0.1:1"), APPLICATION, [changelog], target)
        return sorted(path.name for path in target.iterdir())

    def test_are_made_by_one_run_at_a_time(self, target: Path, unfinished: Path) -> None:
        with lock_workspace(unfinished), pytest.raises(DirectoryInUseError, match=r"made\.unfinished\.lock"):
            self.make(target)
        assert self.make(target) == ["0_0", "0_1"]
        with pytest.raises(TargetNotEmptyError):
            self.make(target)
        assert [path.name for path in target.parent.iterdir()] == ["made"]

    def test_take_the_place_of_what_a_killed_run_has_left(self, target: Path, unfinished: Path) -> None:
        (unfinished / "0_7" / "rocksdb").mkdir(parents=True)
        assert self.make(target) == ["0_0", "0_1"]

    def test_leave_the_files_of_others_alone(self, target: Path, unfinished: Path) -> None:
        unfinished.mkdir()
        (unfinished / "notes").touch()
        with pytest.raises(TargetNotEmptyError, match="files of somebody else"):
            self.make(target)
        assert (unfinished / "notes").exists()
        assert not target.exists()

    def test_may_be_asked_for_in_other_words(self, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        target.mkdir()
        link = target.with_name("link")
        link.symlink_to(target)
        assert self.make(link) == ["0_0", "0_1"]
        assert link.is_symlink()
        (target.parent / "here").mkdir()
        monkeypatch.chdir(target.parent / "here")
        self.make(Path())
        assert (target.parent / "here" / "0_1").is_dir()


@pytest.mark.parametrize(
    ("spec", "record", "problem"),
    [
        (WINDOW, put(b"short"), "not that of a window"),
        (WINDOW, put(b"k" + b"\xff" * 12), "not that of a window"),
        (WINDOW, put(encode_window_key(b"k", 0, 1)), "retain duplicates"),
        (SESSION, put(b"k" * 15), "not that of a session"),
        (SESSION, put(b"k" + bytes(7) + b"\x01" + bytes(7) + b"\x02"), "not that of a session"),
        (VERSIONED, put(b"k", timestamp_ms=-1), "can't begin at -1 ms"),
    ],
)
def test_a_record_of_another_kind_of_store_is_refused(
    spec: StoreSpec, record: ChangelogRecord, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ChangelogDamagedError, match=problem) as raised:
        restore(tmp_path / "0_0", spec, [LogRecord(41, record)])
    assert raised.value.what.endswith(", partition 0, offset 41")


def test_offsets_that_go_back_are_refused(tmp_path: Path) -> None:
    records = [LogRecord(3, put(b"a")), LogRecord(3, put(b"b"))]
    with pytest.raises(ChangelogDamagedError, match="comes after offset 3"):
        restore(tmp_path / "0_0", KEY_VALUE, records)


@pytest.mark.parametrize("offsets", [[1], [0, 2], [0]])
def test_gaps_that_nothing_explains_are_refused(offsets: list[int], tmp_path: Path) -> None:
    records = [LogRecord(offset, put(b"a")) for offset in offsets]
    end = 2 if offsets == [0] else offsets[-1] + 1
    with pytest.raises(ChangelogDamagedError, match="there are no records from offset") as raised:
        restore(tmp_path / "0_0", KEY_VALUE, records, end=end, may_have_gaps=False)
    assert "--transactional" in str(raised.value)


def test_what_a_state_needs_is_what_its_log_lacks(tmp_path: Path) -> None:
    golden = load_fixture("headers-kv")
    restore(tmp_path / "state" / "0_0", KEY_VALUE, log_of(records_in(golden)))
    kept, changed, gone = [record for record in records_in(golden) if record.value is not None][:3]
    restore(
        tmp_path / "log" / "0_0", KEY_VALUE, log_of([kept, changed._replace(value=b"old"), put(b"only in the log")])
    )
    with (
        open_state(str(tmp_path / "state" / "0_0"), StateOptions()).open(0, [KEY_VALUE]) as state,
        open_state(str(tmp_path / "log" / "0_0"), StateOptions()).open(0, [KEY_VALUE]) as log,
    ):
        wanted, there = (StoreRecords(KEY_VALUE, [opened["store"].bytes], -1) for opened in (state, log))
        missing = list(missing_records(KEY_VALUE, differences(KEY_VALUE, wanted, there)))
        written = {record.key: record for record in missing}
        assert len(written) == len(missing)
        assert written[b"only in the log"] == ChangelogRecord(b"only in the log", None, 1, b"")
        assert gone is not None
        assert {record.key: record for record in wanted} == {
            **{record.key: record for record in there if record.key not in written},
            **{key: record for key, record in written.items() if record.value is not None},
        }


@pytest.mark.parametrize(
    "kind", ["kv", "headers-kv", "ts-window", "headers-window-dup", "headers-session", "versioned"]
)
def test_a_store_is_what_its_own_records_restore_to(kind: str, tmp_path: Path) -> None:
    golden, spec = load_fixture(kind), spec_of(kind)
    restore(tmp_path / "0_0", spec, log_of(records_in(golden)))
    records = records_of_state(tmp_path / "0_0", spec)
    assert all(record.timestamp_ms > 0 for record in records)
    logged = sorted(records, key=lambda record: record.timestamp_ms) if kind == "versioned" else records
    restore(tmp_path / "again" / "0_0", spec, log_of(logged))
    assert records_of_state(tmp_path / "again" / "0_0", spec) == records


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("a:ts-kv", "key-value store, timestamped"),
        ("a:headers-window-dup:window-size-ms=10,retention-ms=300000", "retention of 300000 ms in segments of 150000"),
        ("a:session:retention-ms=1000,segment-interval-ms=7", "retention of 1000 ms in segments of 7 ms"),
        ("a:versioned:retention-ms=60000", "retention of 60000 ms in segments of 20000 ms"),
    ],
)
def test_a_store_is_named_in_one_argument(text: str, described: str) -> None:
    assert described in StoreArgument.parse(text).spec().describe()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "kind, one of"),
        ("a:nonsense", "kind, one of"),
        ("a:window:window-size-ms=10", "must say retention-ms, as in a:window:window-size-ms=60000,retention-ms="),
        ("a:kv:retention-ms=10", "a kv has no retention-ms"),
        ("a:session:retention-ms=x", "is not OPTION=MS"),
        ("a:session:retention-ms=1,retention-ms=2", "more than once"),
        ("a/b:kv", "illegal name"),
        ("a:window:window-size-ms=10,retention-ms=5", "must not be shorter"),
    ],
)
def test_a_store_that_is_not_described_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        StoreArgument.parse(text).spec()
