"""The changelogs of a program in stages: each stage gets those of its stores, and what fits no stage is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.cimpl import murmur2

from statestore.format.keys.window_key import encode_window_key
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import states_at
from tests.support.kafka.changelog_application import COMPACT, WINDOWED, Application, Message, Refused
from tests.support.tools.runs import Tools
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.states.program import Program

WORDS = """
from statestore import Serdes
from statestore.dsl import BufferConfig, EmitStrategy, Materialized, StreamsBuilder, Suppressed, TimeWindows

TEXTS = {"key_serde": Serdes.string(), "value_serde": Serdes.string()}


def topology():
    builder = StreamsBuilder()
    words = builder.stream("INPUT", **TEXTS).group_by(lambda key, word: word, **TEXTS, name="by-word")
    words.count(materialized=Materialized.as_("counts"))
    builder.table("OTHER", **TEXTS, materialized=Materialized.as_("table"))
    return builder.build()


def joined_with_itself():
    builder = StreamsBuilder()
    table = builder.table("INPUT", **TEXTS)
    table.join(table, lambda one, other: one, foreign_key=lambda key, value: value, value_serde=TEXTS["value_serde"])
    return builder.build()


def suppressed():
    builder = StreamsBuilder()
    rates = builder.global_table("RATES", **TEXTS, materialized=Materialized.as_("rates"))
    words = builder.stream("INPUT", **TEXTS)
    words.join(rates, lambda key, word: word, lambda word, rate: rate).to("rates-of-words")
    counts = words.group_by_key().count(materialized=Materialized.as_("counts"))
    slow = Suppressed.until_time_limit(60_000, BufferConfig.unbounded()).with_name("slow")
    counts.suppress(slow).to_stream().to("out")
    windows = builder.stream("OTHER", **TEXTS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1_000))
    windows.emit_strategy(EmitStrategy.on_window_close()).count(materialized=Materialized.as_("windows"))
    return builder.build()


nothing = None
"""
PARTITIONS = {"plain": 2, "windows": 3, "versions": 1}
KEYS = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words.py").write_text(WORDS)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def counted(application: Application, words: None) -> Application:
    """An application that has counted words in three partitions, with a table of one."""
    name, module = application.name, application.target.parent / "words.py"
    module.write_text(WORDS.replace("INPUT", f"in-{name}").replace("OTHER", f"other-{name}"))
    for topic, partitions in ((f"in-{name}", 2), (f"other-{name}", 1), (f"{name}-by-word-repartition", 3)):
        application.cluster.create_topic(topic, partitions, {})
    counts, table = application.topic("counts", 3), application.topic("table")
    for number, key in enumerate(KEYS):
        message = Message(key, number.to_bytes(8, "big"), 1_000 + number)
        application.send(counts, [message], partition=murmur2(key, 3))
    application.send(table, [Message(b"k", b"v", 2_000)])
    return application


def to_state(application: Application, *options: str) -> int:
    return application.to_state(options=["--program", "words:topology", *options])


def test_each_stage_gets_its_stores_and_writes_them_back_once(counted: Application, tools: Tools) -> None:
    name, target = counted.name, counted.target
    counted.cluster.commit(name, {f"in-{name}": {0: 0}})
    made = tools(
        "changelog",
        "to-state",
        counted.servers,
        target,
        "--application-id",
        name,
        "--program",
        "words:topology",
        "--json",
    ).document
    assert made["shards"] == {"stage-0": 1, "stage-1": 3}
    assert made["startingOffsets"] == f'{{"in-{name}": {{"0": 0, "1": -2}}, "other-{name}": {{"0": -2}}}}'
    assert made["stores"] == [
        {"name": "table", "kind": "headers-kv", "records": 1},
        {"name": "counts", "kind": "headers-kv", "records": len(KEYS)},
    ]
    stages = [metadata for _, metadata in states_at(DurableLocation(target))]
    assert [made["stateId"][f"stage-{number}"] for number in range(2)] == [stage.state_id for stage in stages]
    found = tools("scan", target, "--store", "counts", "--json").document["entries"]
    assert sorted((bytes.fromhex(entry["key"]), entry["timestamp"]) for entry in found) == [
        (key, 1_000 + number) for number, key in enumerate(KEYS)
    ]
    emitted = tools("changelog", "emit", target, counted.servers, "--application-id", f"{name}-2", "--json").document
    assert [(store["name"], store["entries"], store["written"]) for store in emitted["stores"]] == [
        ("table", 1, 1),
        ("counts", len(KEYS), len(KEYS)),
    ]
    logs = [[message for part in range(3) for message in counted.log(topic, "kv", part)] for topic in _counts(name)]
    assert [(key, value, time_ms) for key, value, time_ms, _ in logs[1]] == [each[:3] for each in logs[0]]


def _counts(name: str) -> list[str]:
    return [f"{application}-counts-changelog" for application in (name, f"{name}-2")]


def test_a_stage_without_stores_has_a_shard_for_each_partition_that_it_reads(counted: Application) -> None:
    assert to_state(counted, "--store", "counts") == 0
    stages = [metadata for _, metadata in states_at(DurableLocation(counted.target))]
    assert [(stage.shards, [spec.name for spec in stage.stores]) for stage in stages] == [(2, []), (3, ["counts"])]


WINDOWS = "windows:headers-window:window-size-ms=10000,retention-ms=600000"
VERSIONS = "versions:headers-versioned:retention-ms=600000"


def send_everywhere(
    application: Application, topic: str, partitions: int, messages: list[tuple[bytes, Message]]
) -> None:
    """Send messages to the partitions of the records' keys that come with them."""
    for record_key, message in messages:
        application.send(topic, [message], partition=murmur2(record_key, partitions))


def test_stores_with_different_numbers_of_partitions_are_divided_and_put_together_again(
    application: Application, refused: Refused, tools: Tools
) -> None:
    keys = [bytes([97 + number]) * (1 + number % 3) for number in range(24)]
    configs = {"plain": COMPACT, "windows": WINDOWED, "versions": {**COMPACT, "min.compaction.lag.ms": "86400000"}}
    plain, windows, versions = (application.topic(name, count, configs[name]) for name, count in PARTITIONS.items())
    send_everywhere(application, plain, 2, [(key, Message(key, key, 5)) for key in keys])
    starts_ms = [(int(time.time()) - number) * 1_000 // 10_000 * 10_000 for number in range(24)]
    at = zip(keys, starts_ms, strict=True)
    of_windows = [(key, Message(encode_window_key(key, ms), b"w", ms)) for key, ms in at]
    send_everywhere(application, windows, 3, of_windows)
    of_versions = [
        (key, Message(key, value, starts_ms[0] + ms)) for key in keys for value, ms in ((b"1", 0), (b"2", 9))
    ]
    send_everywhere(application, versions, 1, of_versions)

    stores, options = ("plain:headers-kv", WINDOWS, VERSIONS), ["--trust-keys", "--json"]
    proof = "nothing proves that its keys are the keys of records"
    assert refused(application.to_state(*stores), ExitCode.FOUND_PROBLEMS, proof, "--trust-keys")
    assert application.to_state(*stores, options=options) == 0
    ((_, state),) = states_at(DurableLocation(application.target))
    assert state.shards == 6
    found = tools("scan", application.target, "--store", "windows", "--json").document["entries"]
    assert len({entry["key"] for entry in found}) == len(keys)

    application.send(plain, [Message(b"a", b"changed", 9)], partition=murmur2(b"a", 2))
    emit = ("changelog", "emit", application.target, application.servers, "--application-id", application.name)
    emitted = tools(*emit, "--append", "--json").document["stores"]
    assert [(store["name"], store["entries"], store["written"]) for store in emitted] == [
        ("plain", len(keys), 1),
        ("versions", 2 * len(keys), 0),
        ("windows", len(keys), 0),
    ]


def test_what_is_left_in_a_repartition_topic(counted: Application, refused: Refused) -> None:
    topic = f"{counted.name}-by-word-repartition"
    counted.send(topic, [Message(b"a")], partition=1)
    said = "let nothing write to its input until it has, and stop it"
    assert refused(to_state(counted), ExitCode.FOUND_PROBLEMS, f"{topic}, partition 1 has records from offset 0", said)
    assert not counted.target.exists()
    counted.cluster.commit(counted.name, {topic: {1: 1}})
    assert to_state(counted) == 0


def test_a_changelog_of_no_stage(counted: Application, refused: Refused) -> None:
    topic = counted.topic("other")
    words = (f"{topic}: no stage of the program has its store: the stores are table, counts", "--store")
    assert refused(to_state(counted), ExitCode.FOUND_PROBLEMS, *words)
    assert to_state(counted, "--store", "counts", "--store", "table") == 0


def test_a_store_without_a_changelog(application: Application, words: None, refused: Refused) -> None:
    for topic in ("INPUT", "OTHER"):
        if topic not in application.cluster.topics():
            application.cluster.create_topic(topic, 1, {})
    topic = f"{application.name}-table-changelog"
    assert refused(to_state(application), ExitCode.UNKNOWN_LAYOUT, f"{topic}: there is no such topic", "--program")


def test_a_state_without_stages_is_not_mixed_with_stages(counted: Application, refused: Refused) -> None:
    assert counted.to_state("table:headers-kv") == 0
    status = to_state(counted)
    assert status == ExitCode.USAGE
    assert [path.name for path in counted.target.iterdir() if path.name.startswith("stage")] == []


def test_a_stage_that_can_not_be_made_leaves_no_state(counted: Application, refused: Refused) -> None:
    stranger = counted.target / "stage-1" / "stranger"
    stranger.parent.mkdir(parents=True)
    stranger.touch()
    assert refused(to_state(counted), ExitCode.USAGE, "stage-1", "'stranger'")
    assert states_at(DurableLocation(counted.target)) == []
    stranger.unlink()
    assert to_state(counted) == 0
    assert len(states_at(DurableLocation(counted.target))) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--program", "words:nothing"], "words:nothing must be a Topology, or a function that returns one"),
        (["--program", "nowhere:topology"], "No module named 'nowhere'"),
        (["--program", "words:other"], "has no attribute 'other'"),
        (["--program", "words"], "'words' is not MODULE:NAME"),
        (["--program", "words:joined_with_itself"], "would come back to the stage that sends them"),
        (["--program", "words:topology", "--store", "s"], "the program has no store 's', but table, counts"),
        (["--program", "words:topology", "--store", "counts:kv"], "the program says what its stores are"),
        ([], "say with --program what the query runs, or name its stores with --store"),
    ],
)
def test_programs_that_can_not_be_meant(
    options: list[str], said: str, words: None, tmp_path: Path, tools: Tools
) -> None:
    ended = tools("changelog", "to-state", "nobody:9", tmp_path / "new", "--application-id", "a", *options)
    assert (ended.code, said in " ".join(ended.err.replace("│", " ").split())) == (ExitCode.USAGE, True), ended.err
    assert not (tmp_path / "new").exists()


def test_stores_that_kafka_streams_does_not_have_are_not_looked_for(application: Application, words: None) -> None:
    program = Program.read("words:suppressed")
    (stage,) = program.stages
    assert (program.input_topics, stage.reads) == (("INPUT", "OTHER", "RATES"), ("INPUT", "OTHER"))
    assert [spec.name for spec in stage.stores] == ["counts", "slow-store", "windows"]
    assert stage.beside == ("slow-store-times", "windows-ends")
    for topic in {*program.input_topics} - application.cluster.topics().keys():
        application.cluster.create_topic(topic, 1, {})
    for store in (*(spec.name for spec in stage.stores), *stage.beside):  # an earlier emit has left the last ones
        application.topic(store, config=WINDOWED if store == "windows" else COMPACT)
    assert application.to_state(options=["--program", "words:suppressed"]) == 0


def test_a_program_says_what_a_state_needs(words: None) -> None:
    program = Program.read("words:topology")
    assert [[spec.name for spec in stage.stores] for stage in program.stages] == [["table"], ["counts"]]
    assert [stage.reads for stage in program.stages] == [("INPUT", "OTHER"), ("by-word-repartition",)]
    assert (program.input_topics, program.repartition_topics) == (("INPUT", "OTHER"), ("by-word-repartition",))
