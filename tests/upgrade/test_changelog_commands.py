"""The changelog commands on a real broker: what they make, and what they refuse, leaving topics and targets alone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.cimpl import murmur2

from statestore.format.keys.window_key import encode_window_key
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import UNFINISHED_NAME, read_metadata
from tests.support.golden.kafka_streams import load_fixture
from tests.support.kafka.changelog_application import COMPACT, WINDOWED, Application, Message, Refused
from tests.support.tools.runs import document_in
from upgrade_tools.changelogs import cluster
from upgrade_tools.cli.app import main
from upgrade_tools.cli.exit_codes import ExitCode

DELETE = {"cleanup.policy": "delete", "retention.ms": "-1"}
WINDOW = "s:window:window-size-ms=10000,retention-ms=120000"


def scanned(capsys: pytest.CaptureFixture[str], directory: Path, *options: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["scan", "--json", str(directory), *options]) == 0
    entries: list[dict[str, Any]] = document_in(capsys.readouterr().out)["entries"]
    return entries


def test_what_was_committed_is_restored_and_what_was_aborted_is_not(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = application.topic()
    application.send(topic, [Message(b"a", b"1", 11, [("h", None)]), Message(b"b", b"1")], ended="commit")
    application.send(topic, [Message(b"a", b"aborted")], ended="abort")
    application.send(topic, [Message(b"b", None), Message(b"c", b"", 13)])
    assert application.restore("s:headers-kv", options=["--json"]) == 0
    made = document_in(capsys.readouterr().out)
    assert made["stores"] == [{"name": "s", "kind": "headers-kv", "records": 4}]
    assert scanned(capsys, application.target / "0_0") == [
        {"key": b"a".hex(), "value": b"1".hex(), "timestamp": 11, "headers": [["h", None]]},
        {"key": b"c".hex(), "value": "", "timestamp": 13, "headers": []},
    ]


def test_what_the_retention_of_a_topic_has_deleted_is_not_missed(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = application.topic(config=WINDOWED)
    now_ms = int(time.time()) * 1_000 // 10_000 * 10_000
    application.send(topic, [Message(encode_window_key(b"k", now_ms + n * 10_000)) for n in range(4)])
    application.delete_before(topic, 2)
    assert application.restore(WINDOW) == 0
    starts = [entry["start"] for entry in scanned(capsys, application.target / "0_0", "--window-size-ms", "10000")]
    assert starts == [now_ms + 20_000, now_ms + 30_000]


@pytest.mark.parametrize("topics", [[], ["other"]])
def test_a_topic_that_is_missing(application: Application, refused: Refused, topics: list[str]) -> None:
    for store in topics:
        application.topic(store)
    missing = (f"{application.name}-s-changelog: there is no such topic", "--application-id", *topics)
    assert refused(application.to_state("s:kv"), ExitCode.UNKNOWN_LAYOUT, *missing)


def test_stores_with_different_numbers_of_partitions(application: Application, refused: Refused) -> None:
    application.topic("s", 1)
    application.topic("t", 2)
    assert refused(application.restore("s:kv", "t:kv"), ExitCode.FOUND_PROBLEMS, "has 2 partitions", "has 1")


def test_an_application_that_runs(application: Application, refused: Refused) -> None:
    application.topic()
    application.cluster.create_topic(f"{application.name}-in", 1, {})
    member = Consumer(
        {"bootstrap.servers": application.servers, "group.id": application.name, "enable.partition.eof": True}
    )
    member.subscribe([f"{application.name}-in"])
    assert member.poll(30) is not None  # the end of the partition: it is a member now
    assert refused(application.restore("s:kv"), ExitCode.IN_USE, "runs, or has just stopped", "session.timeout.ms")
    assert refused(application.to_state("s:kv"), ExitCode.IN_USE, "runs")
    state = load_fixture("headers-kv").unpack(application.target.parent / "golden")
    assert refused(application.emit(state), ExitCode.IN_USE, "runs")
    offsets = application.target.parent / "offsets"
    offsets.write_text(json.dumps({f"{application.name}-in": {"0": 0}}))
    assert refused(application.offsets("--set", str(offsets)), ExitCode.IN_USE, "runs")
    member.close()
    assert application.restore("s:kv") == 0


@pytest.mark.parametrize("config", [DELETE, {**COMPACT, "cleanup.policy": "compact,delete"}])
def test_a_log_that_lacks_its_beginning(application: Application, refused: Refused, config: Mapping[str, str]) -> None:
    topic = application.topic(config=config)
    application.send(topic, [Message(b"a"), Message(b"b")])
    application.delete_before(topic, 1)
    assert refused(application.restore("s:kv"), ExitCode.DAMAGED, "begins at offset 1", "local state")


def test_a_gap_that_only_transactions_explain(application: Application, refused: Refused) -> None:
    topic = application.topic(config=DELETE)
    application.send(topic, [Message(b"a")], ended="commit")
    application.send(topic, [Message(b"b")], ended="abort")
    application.send(topic, [Message(b"c")])
    assert refused(application.restore("s:kv"), ExitCode.DAMAGED, "no records from offset 1 to 3", "--transactional")
    assert application.restore("s:kv", options=["--transactional"]) == 0


def test_a_transaction_that_has_not_ended(application: Application, refused: Refused) -> None:
    topic = application.topic()
    producer = application.send(topic, [Message(b"a")], ended="never")
    assert refused(
        application.to_state("s:kv"), ExitCode.DAMAGED, "offset 0 on has not ended", "transaction.timeout.ms"
    )
    producer.abort_transaction(30)
    assert application.to_state("s:kv") == 0


def test_records_that_no_store_has_written(application: Application, refused: Refused) -> None:
    topic = application.topic(config=DELETE)
    application.send(topic, [Message(encode_window_key(b"k", 20_000)), Message(b"short")])
    assert refused(application.restore(WINDOW), ExitCode.DAMAGED, "partition 0, offset 1", "not that of a window")
    assert not application.target.exists()
    assert refused(application.to_state(WINDOW), ExitCode.DAMAGED, "offset 1")
    begun = {path.name for path in application.target.rglob("*") if path.is_file()}
    assert begun == {UNFINISHED_NAME}, "what was begun is no state"
    application.send(topic, [Message(None)])
    assert refused(application.to_state("s:kv"), ExitCode.DAMAGED, "offset 2: it has no key")
    assert application.cluster.log_ends(topic, 1)[0].end_offset == 3


def test_a_broker_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_TIMEOUT_S", 1.0)
    nobody = ["127.0.0.1:1", str(tmp_path / "made"), "--application-id", "a", "--store", "s:kv"]
    assert main(["changelog", "to-state", *nobody]) == ExitCode.NO_ACCESS
    said = capsys.readouterr().err
    assert "127.0.0.1:1" in said
    assert "--client-config" in said
    assert not (tmp_path / "made").exists()


def test_keys_that_are_not_those_of_records(application: Application, refused: Refused) -> None:
    topic = application.topic(partitions=2)
    key = next(key for key in (b"a", b"b", b"c", b"d") if murmur2(key, 2) == 0)
    application.send(topic, [Message(key)], partition=1)
    assert refused(application.to_state("s:kv"), ExitCode.FOUND_PROBLEMS, f"0x{key.hex()}", "--shard-by partition")
    assert application.to_state("s:kv", options=["--shard-by", "partition"]) == 0
    metadata = read_metadata(DurableLocation(application.target))
    assert metadata is not None
    assert (metadata.shard_by, metadata.shards) == ("partition", 2)


def test_a_target_that_is_not_empty(application: Application, refused: Refused) -> None:
    application.topic()
    application.target.mkdir()
    (application.target / "file").touch()
    assert refused(application.restore("s:kv"), ExitCode.USAGE, str(application.target))
    assert refused(application.to_state("s:kv"), ExitCode.USAGE, "'file'")
    assert [path.name for path in application.target.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--store", "s:nonsense"], "kind, one of"),
        (["--store", "s:kv", "--store", "s:ts-kv"], "named twice"),
        (["--store", "s:kv", "--client-config", "missing"], "can't be read"),
    ],
)
def test_wrong_usage(options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["changelog", "restore", "127.0.0.1:1", str(tmp_path / "made"), "--application-id", "a", *options]
    assert main(command) == ExitCode.USAGE
    assert problem in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_offsets_become_those_of_the_group_and_come_back(
    application: Application, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic, repartition = f"{application.name}-in", f"{application.name}-by-name-repartition"
    application.cluster.create_topic(topic, 2, {})
    application.send(topic, [Message(b"a"), Message(b"b")])
    offsets = tmp_path / "offsets"
    offsets.write_text(f'\n{{"{topic}": {{"0": 1}}}}\n')
    assert application.offsets("--set", str(offsets)) == 0
    capsys.readouterr()
    assert application.offsets() == 0
    assert json.loads(capsys.readouterr().out) == {topic: {"0": 1, "1": -2}}
    application.cluster.create_topic(repartition, 1, {})
    application.send(repartition, [Message(b"a"), Message(b"b")])
    application.cluster.commit(application.name, {repartition: {0: 0}})
    assert application.offsets() == ExitCode.FOUND_PROBLEMS
    assert "--input-topic" in capsys.readouterr().err
    assert application.offsets("--input-topic", repartition) == 0
    assert json.loads(capsys.readouterr().out) == {repartition: {"0": 0}}


@pytest.mark.parametrize(
    "own",
    [
        "by-name-repartition",
        "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "by-name-subscription-response-topic",
    ],
)
def test_ends_of_transactions_are_not_waiting(
    application: Application, refused: Refused, capsys: pytest.CaptureFixture[str], own: str
) -> None:
    repartition = f"{application.name}-{own}"
    application.cluster.create_topic(repartition, 3, {})
    for ended in ("commit", "abort"):
        application.send(repartition, [Message(None)], ended=ended)
    application.cluster.commit(application.name, {repartition: {0: 1, 1: 0, 2: 0}})
    assert application.offsets() == 0
    assert json.loads(capsys.readouterr().out) == {}
    application.send(repartition, [Message(None)], partition=2)
    assert refused(application.offsets(), ExitCode.FOUND_PROBLEMS, f"{repartition}, partition 2", "from offset 0 on")


def test_an_application_that_is_restored_goes_on_with_what_waits(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, repartition = f"{application.name}-in", f"{application.name}-by-name-repartition"
    for name in (topic, repartition):
        application.cluster.create_topic(name, 1, {})
        application.send(name, [Message(b"a")])
    application.send(application.topic(), [Message(b"a")])
    application.cluster.commit(application.name, {topic: {0: 1}, repartition: {0: 0}})
    assert application.to_state("s:headers-kv") == ExitCode.FOUND_PROBLEMS
    assert application.restore("s:headers-kv", options=["--input-topic", "nonsense"]) == ExitCode.UNKNOWN_LAYOUT
    assert not application.target.exists()
    capsys.readouterr()
    assert application.restore("s:headers-kv", options=["--json"]) == 0
    assert json.loads(json.loads(capsys.readouterr().out)["startingOffsets"]) == {topic: {"0": 1}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "none were given"),
        ("nonsense", "not the offsets of a Kafka source"),
        ('{"logOffset": 3}', "not the offsets of a Kafka source"),
        ('{"TOPIC": {"0": "1"}}', "not the offsets of a Kafka source"),
        ('{"TOPIC": {"0": 0}}\n{"TOPIC": {"0": 0}}', "two sources read"),
        ('{"TOPIC": {"1": 0}}', "has no partition 1"),
        ('{"TOPIC": {"0": 2}}', "has the offsets 0 to 1, but not 2"),
    ],
)
def test_offsets_that_can_not_be_a_groups(
    application: Application, refused: Refused, text: str, problem: str, tmp_path: Path
) -> None:
    topic = f"{application.name}-in"
    application.cluster.create_topic(topic, 1, {})
    application.send(topic, [Message(b"a")])
    (tmp_path / "offsets").write_text(text.replace("TOPIC", topic))
    status = application.offsets("--set", str(tmp_path / "offsets"))
    assert refused(status, ExitCode.FOUND_PROBLEMS, problem, "None was set")
    assert application.cluster.committed(application.name) == {}


def test_b16_entries_of_a_changelog_expire_by_their_headers(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = application.topic()
    headers = {b"a": [(EXPIRY_HEADER, expiry_value(100))], b"b": [(EXPIRY_HEADER, b"200")], b"c": []}
    application.send(topic, [Message(key, headers=pairs) for key, pairs in headers.items()])
    assert application.to_state("s:headers-kv", options=["--expiry-header", "s"]) == 0
    for time_ms, keys in ((99, "abc"), (100, "bc"), (200, "c")):
        found = scanned(capsys, application.target, "--store", "s", "--live-at", str(time_ms))
        assert "".join(bytes.fromhex(entry["key"]).decode() for entry in found) == keys
