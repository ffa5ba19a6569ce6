"""`changelog emit` on a real broker: what it writes, and what it refuses before anything is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.keys.window_key import encode_session_key, encode_window_key, split_session_key
from statestore.format.records.header_bytes import parse_headers
from statestore.recovery.commit.changelog import ChangelogRecord
from tests.support.golden.kafka_streams import load_fixture
from tests.support.golden.replay import records_of, spec_of
from tests.support.kafka.changelog_application import COMPACT, WINDOWED, Application, Message, Refused
from tests.support.tools.runs import document_in
from upgrade_tools.changelogs.logs import LogRecord, PartitionLog
from upgrade_tools.changelogs.restoring import restore_task_directory
from upgrade_tools.changelogs.topic_setup import existing_topic
from upgrade_tools.cli.exit_codes import ExitCode

FOR_EVER = {**WINDOWED, "retention.ms": "-1"}
VERSIONED = {**COMPACT, "min.compaction.lag.ms": str(2**62)}
HALF_A_CENTURY_MS = 50 * 365 * 24 * 3_600_000
WINDOW = "headers-window:window-size-ms=10000,retention-ms=120000"


def options_of(kind: str) -> list[str]:
    options = ["--kind", kind]
    if kind.endswith("-window"):
        options += ["--window-size-ms", "10000"]
    if not kind.endswith("kv"):
        options += ["--segment-interval-ms", "60000", "--retention-ms", str(spec_of(kind).retention_ms)]
    return options


def as_it_restores(kind: str, record: ChangelogRecord) -> tuple[bytes, bytes | None, int, list[Any]]:
    """Return a record with what its store has room for."""
    time_ms = record.timestamp_ms
    if kind == "kv":
        time_ms = 1
    elif kind == "headers-session":
        time_ms = split_session_key(record.key)[2]
    return record.key, record.value, time_ms, parse_headers(record.header_bytes)


def task_of(directory: Path, spec: StoreSpec, *records: ChangelogRecord) -> Path:
    """Make the directory of a task with what these records restore to."""
    log = PartitionLog("topic", 0, 0, len(records), may_have_gaps=False)
    numbered = [LogRecord(number, record) for number, record in enumerate(records)]
    restore_task_directory(directory, "application", {spec: (log, numbered)})
    return directory


@pytest.mark.parametrize("kind", ["kv", "headers-window", "headers-session", "versioned"])
def test_a_state_is_written_as_kafka_streams_would_have_logged_it(
    application: Application, kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    golden = load_fixture(kind)
    state, spec = golden.unpack(tmp_path / "golden"), spec_of(kind)
    options = [*options_of(kind), "--partitions", "1"]
    assert application.emit(state, *options) == 0
    topic = f"{application.name}-store-changelog"
    settings = application.cluster.settings(topic)
    assert settings.deletes is (kind in ("headers-window", "headers-session"))
    assert settings.compacts
    # By the broker's clock, all in the state is old: its times are of 1970.
    keeps_ms = existing_topic(application.cluster, spec, topic, 1).keeps_ms
    assert (keeps_ms is None) is (kind == "kv")
    assert keeps_ms is None or keeps_ms > HALF_A_CENTURY_MS
    written = application.log(topic, kind)
    logged = [
        as_it_restores(kind, record)
        for session in golden.fixture["sessions"]
        for record in records_of(session["changelog"])
    ]
    assert [record for record in written if record not in logged] == []
    assert any(headers for *_, headers in written) is kind.startswith("headers-")
    assert len(written) >= len(golden.logical["entries"])
    if kind == "versioned":
        assert [time_ms for _, _, time_ms, _ in written] == sorted(time_ms for _, _, time_ms, _ in written)
    # Again: nothing is missing, so nothing is written.
    ends = application.cluster.log_ends(topic, 1)
    capsys.readouterr()
    assert application.emit(state, *options) == ExitCode.FOUND_PROBLEMS
    assert "--append" in capsys.readouterr().err
    assert application.emit(state, *options, "--append") == 0
    assert application.cluster.log_ends(topic, 1) == ends
    assert spec.name in capsys.readouterr().out


def test_what_the_state_has_no_more_is_deleted_in_the_log(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, old, gone = (encode_session_key(key, 70_000, 80_000) for key in (b"kept", b"old", b"gone"))
    messages = [Message(kept, b"1", 80_000, [("h", b"1")]), Message(old, b"new", 80_000)]
    session = "s:headers-session:retention-ms=120000"
    application.send(application.topic(config=WINDOWED), messages)
    assert application.restore(session) == 0
    other = Application(application.servers, f"{application.name}-b", application.target.parent / "other")
    topic = other.topic(config=FOR_EVER)
    other.send(topic, [messages[0], Message(old, b"old", 80_000), Message(gone, b"x", 80_000)])
    assert other.emit(application.target / "0_0", "--append") == 0
    assert other.log(topic, "headers-session")[3:] == [(gone, None, 80_000, []), (old, b"new", 80_000, [])]


def test_versions_in_the_log_that_the_state_has_not(application: Application, refused: Refused) -> None:
    store = "s:versioned:retention-ms=300000"
    application.send(application.topic(), [Message(b"k", b"1", 1_000), Message(b"k", b"3", 3_000)])
    assert application.restore(store) == 0
    other = Application(application.servers, f"{application.name}-b", application.target.parent / "other")
    topic = other.topic(config=VERSIONED)
    other.send(topic, [Message(b"k", b"2", 2_000)])
    status = other.emit(application.target / "0_0", "--append")
    assert refused(status, ExitCode.FOUND_PROBLEMS, f"0x{b'k'.hex()}", "can't be deleted", "Delete the topic")
    assert other.cluster.log_ends(topic, 1)[0].end_offset == 1
    third = Application(application.servers, f"{application.name}-c", application.target.parent / "third")
    third.send(third.topic(config=VERSIONED), [Message(b"k", b"1", 1_000), Message(b"k", b"other", 3_000)])
    assert third.emit(application.target / "0_0", "--append") == 0


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        ("headers-kv", WINDOWED, "keeps its values for ever"),
        ("headers-window", {**WINDOWED, "retention.ms": "1000"}, "keeps its entries longer"),
        ("headers-kv", {**COMPACT, "message.timestamp.type": "LogAppendTime"}, "LogAppendTime"),
        ("versioned", COMPACT, "compacts versions away after min.compaction.lag.ms=0"),
        # Those of the state are older, by the broker's clock.
        ("headers-window", WINDOWED, "older and would be lost. Set the topic's retention.ms to "),
        ("versioned", {**COMPACT, "min.compaction.lag.ms": "300000"}, "Set the topic's min.compaction.lag.ms to "),
    ],
)
def test_a_topic_that_would_not_keep_a_state(
    application: Application,
    refused: Refused,
    kind: str,
    config: Mapping[str, str],
    problem: str,
    tmp_path: Path,
) -> None:
    state = load_fixture(kind).unpack(tmp_path / "golden")
    topic = application.topic("store", 1, config)
    status = application.emit(state, *options_of(kind))
    assert refused(status, ExitCode.FOUND_PROBLEMS, problem, "nothing was written")
    assert application.cluster.log_ends(topic, 1)[0].end_offset == 0


def test_records_that_the_broker_does_not_take(application: Application, refused: Refused, tmp_path: Path) -> None:
    state = load_fixture("headers-kv").unpack(tmp_path / "golden")
    topic = application.topic("store", 1, {**COMPACT, "max.message.bytes": "100"})
    assert refused(application.emit(state), ExitCode.FOUND_PROBLEMS, topic, "the broker refused a record", "--append")


def test_a_state_of_which_too_little_is_known(application: Application, refused: Refused, tmp_path: Path) -> None:
    state = load_fixture("headers-window").unpack(tmp_path / "golden")
    for said in ([], ["--segment-interval-ms", "60000"], ["--retention-ms", "120000"]):
        status = application.emit(state, "--kind", "headers-window", "--window-size-ms", "10000", *said)
        assert refused(
            status, ExitCode.USAGE, "how long store 'store' keeps", "--retention-ms", "--segment-interval-ms"
        )
    assert f"{application.name}-store-changelog" not in application.cluster.topics()


def test_partitions_that_a_state_does_not_fit(application: Application, refused: Refused, tmp_path: Path) -> None:
    state = load_fixture("headers-kv").unpack(tmp_path / "golden")
    status = application.emit(state)
    assert refused(status, ExitCode.USAGE, "how many partitions", "--partitions")
    other = state.rename(state.with_name("0_3"))
    status = application.emit(other, "--partitions", "3")
    assert refused(status, ExitCode.FOUND_PROBLEMS, "has 3 partitions", "has 4")
    assert application.emit(other, "--partitions", "4") == 0
    ends = application.cluster.log_ends(f"{application.name}-store-changelog", 4)
    assert [end.end_offset > 0 for end in ends] == [False, False, False, True]


def test_all_stores_are_written_or_none(
    application: Application, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    window = encode_window_key(b"k", 20_000)
    application.send(application.topic("totals"), [Message(b"k", b"1", 11, [("h", None)])])
    application.send(application.topic("windows", config=FOR_EVER), [Message(window, b"2", 22)])
    assert application.restore("totals:headers-kv", f"windows:{WINDOW}") == 0
    other = Application(application.servers, f"{application.name}-b", application.target.parent / "other")
    totals, windows = f"{other.name}-totals-changelog", other.topic("windows", config=FOR_EVER)
    other.send(windows, [Message(b"short")])
    emit = ("--partitions", "1", "--append")
    status = other.emit(application.target, *emit)
    assert refused(status, ExitCode.DAMAGED, "partition 0, offset 0", "not that of a window")
    assert totals not in other.cluster.topics(), "a topic was made before all was read"
    assert other.cluster.log_ends(windows, 1)[0].end_offset == 1
    third = Application(application.servers, f"{application.name}-c", application.target.parent / "third")
    # The tasks that are here need not be all.
    assert refused(third.emit(application.target), ExitCode.USAGE, "how many partitions", "--partitions")
    assert third.emit(application.target, "--partitions", "1", "--json") == 0
    written = {store["name"]: store["written"] for store in document_in(capsys.readouterr().out)["stores"]}
    assert written == {"totals": 1, "windows": 1}
    assert third.log(f"{third.name}-totals-changelog", "headers-kv") == [(b"k", b"1", 11, [("h", None)])]
    assert third.log(f"{third.name}-windows-changelog", "headers-window") == [(window, b"2", 22, [])]


def test_windows_behind_those_of_a_later_time(application: Application, refused: Refused) -> None:
    """They would have expired in the store that is restored."""
    application.send(application.topic(config=FOR_EVER), [Message(encode_window_key(b"k", 20_000), b"old", 20_001)])
    assert application.restore(f"s:{WINDOW}") == 0
    other = Application(application.servers, f"{application.name}-b", application.target.parent / "other")
    topic = other.topic(config=FOR_EVER)
    other.send(topic, [Message(encode_window_key(b"k", 140_000), b"new", 140_001)])
    status = other.emit(application.target, "--append")
    key = encode_window_key(b"k", 20_000).hex()
    assert refused(status, ExitCode.FOUND_PROBLEMS, f"0x{key}", "reach 140000 ms", "expired", "Delete the topic")
    assert other.cluster.log_ends(topic, 1)[0].end_offset == 1


def test_windows_that_reads_do_not_show_need_not_stay(application: Application) -> None:
    """They are there as long as their segment, which says nothing of how long the topic must keep them."""
    now_ms = int(time.time() * 1000)
    hidden, shown = (encode_window_key(b"k", start_ms) for start_ms in (70_000, 200_000))
    messages = [Message(hidden, b"1", 1_000), Message(shown, b"2", now_ms)]
    application.send(application.topic(config=FOR_EVER), messages)
    assert application.restore(f"s:{WINDOW}") == 0
    other = Application(application.servers, f"{application.name}-b", application.target.parent / "other")
    topic = other.topic(config=WINDOWED)
    assert other.emit(application.target, "--append") == 0
    assert other.log(topic, "headers-window") == [(hidden, b"1", 1_000, []), (shown, b"2", now_ms, [])]


def test_a_version_from_0_on_begins_at_1_if_there_is_none(
    application: Application, refused: Refused, tmp_path: Path
) -> None:
    zero, one, later = (ChangelogRecord(b"k", b"v%d" % time_ms, time_ms, b"") for time_ms in (0, 1, 5_000))
    state, spec = task_of(tmp_path / "state" / "0_0", spec_of("versioned"), zero, later), spec_of("versioned")
    assert application.emit(state, "--partitions", "1") == 0
    topic = f"{application.name}-store-changelog"
    assert application.log(topic, "versioned") == [(b"k", b"v0", 1, []), (b"k", b"v5000", 5_000, [])]
    assert application.emit(state, "--append") == 0
    assert application.cluster.log_ends(topic, 1)[0].end_offset == 2, "nothing was missing"
    other = Application(application.servers, f"{application.name}-b", application.target.parent / "other")
    both = task_of(tmp_path / "both" / "0_0", spec, zero, one, later)
    status = other.emit(both, "--partitions", "1")
    assert refused(status, ExitCode.FOUND_PROBLEMS, f"key 0x{b'k'.hex()} from 0 ms on", "nothing was written")
    assert f"{other.name}-store-changelog" not in other.cluster.topics()


def test_a_directory_that_was_not_closed_cleanly_is_named(
    application: Application, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = task_of(tmp_path / "0_0", spec_of("kv"), ChangelogRecord(b"a", b"1", 1, b""))
    with suppress(InterruptedError), TaskDirectory(task, "application", 0) as directory:
        directory.open_store(spec_of("kv")).put(b"k", b"uncommitted")
        raise InterruptedError
    assert application.emit(task, "--partitions", "1", "--json") == 0
    said = capsys.readouterr()
    (note,) = document_in(said.out)["notes"]
    assert "store store of task 0 was not closed cleanly" in note
    assert note in said.err
