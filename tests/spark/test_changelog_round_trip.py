"""An application of real Kafka Streams moves to Spark through its changelogs, goes on there, and moves back.

The commands are those of docs/kafka-changelogs.md. After each leg the stores are compared with a plain model.
"""

from __future__ import annotations

import importlib
import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statestore import Topology
from statestore.format.values.buffered_record import decode_logged_record
from statestore.recovery.commit.pointer import CommitPointer
from statestore.spark import stateful
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.documentation import blocks_of
from tests.support.kafka import purchases_application
from tests.support.kafka.purchases_application import (
    INPUT,
    OUTPUT,
    Change,
    Purchases,
    drawn_changes,
    running_in_kafka_streams,
)
from tests.support.kafka.totals_application import Amount, Model, run_in_kafka_streams, send, topology
from tests.support.tools.migrations import entry_documents
from tests.support.tools.page_commands import PageCommands
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.cli.app import main
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.errors import GroupOffsetsError
from upgrade_tools.states.detection import open_state, open_states
from upgrade_tools.states.state import StateOptions

PAGE = Path(__file__).parents[2] / "docs" / "kafka-changelogs.md"
APPLICATION, TOPIC, PARTITIONS = "totals", "amounts", 2
ID = ("--application-id", APPLICATION)
LEG = 60
IN_STAGES = "A program in stages"


def some_amounts(count: int) -> list[Amount]:
    """Return amounts of the last minutes: the broker deletes windows that are older than a day by its own clock."""
    rng = random.Random(11)
    begin_ms = (int(time.time()) - 600) * 1000
    return [
        Amount(
            rng.choice(["ada", "bjarne", "chen", "dolores", "jürgen"]),
            rng.choice([0, 7, -3, 250, 2**40]),
            begin_ms + 500 * number + rng.randrange(-900, 900),
            rng.choice([[], [("trace", bytes([number])), ("trace", None)], [("", b""), ("größe", b"\x00\xff")]]),
        )
        for number in range(count)
    ]


def content(path: Path, pointers: Path | None = None) -> Model:
    """Return what is in a state."""
    recorded = None
    if pointers is not None:
        recorded = [CommitPointer.from_json(line) for line in pointers.read_text().splitlines()]
    # The size of windows is recorded in a state location, and in directories that were made here.
    state = open_state(str(path), StateOptions(pointers=recorded))
    entries: dict[str, list[dict[str, object]]] = {spec.name: [] for spec in state.specs()}
    for part in state.parts:
        with state.open(part, state.specs()) as stores:
            for name, store in stores.items():
                entries[name] += entry_documents(store)
    return Model.of_entries(entries)


@dataclass(frozen=True)
class Journey:
    """What the stores held after each leg, and what they had to hold."""

    amounts: list[Amount]
    in_spark: Model
    back_in_kafka_streams: Model
    made: dict[str, Any]
    committed_at_first: dict[int, int]
    while_running: int
    """How a command ended while the application ran."""
    committed_at_last: dict[int, int]
    printed_offsets: dict[str, dict[str, int]]
    without_headers: Path
    commands_left: list[list[str]]


@pytest.fixture(scope="module")
def journey(spark: SparkSession, broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    home = tmp_path_factory.mktemp("journey")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return travel(spark, broker.bootstrap_servers, home)


def travel(spark: SparkSession, servers: str, home: Path) -> Journey:
    """Run the application in Kafka Streams, in Spark and in Kafka Streams, each for as many amounts."""
    amounts, cluster = some_amounts(3 * LEG), Cluster(servers)
    cluster.create_topic(TOPIC, PARTITIONS, {})
    # Spark does not know that the directory has changed.
    words = {"BROKER": servers, "CHECKPOINT": str(home / "CHECKPOINT")}
    page, changelog = PageCommands(PAGE, words, lambda heading: heading != IN_STAGES), ("upgrade_tools", "changelog")

    send(servers, TOPIC, amounts[:LEG])
    run_in_kafka_streams(servers, APPLICATION, home / "first", TOPIC, LEG)
    first = cluster.committed(APPLICATION)[TOPIC]

    page.run(*changelog, "to-state")
    made = json.loads((home / "made.json").read_text())
    send(servers, TOPIC, amounts[LEG : 2 * LEG])
    run_in_spark(spark, servers, home, topology(), made)
    page.run("statestore.spark", "pointers")
    page.run("statestore.spark", "offsets")
    in_spark = content(home / "STATE", home / "pointers")

    page.run(*changelog, "emit")
    page.run(*changelog, "offsets")
    # Without local state: it restores all from the changelogs. The record that it stops after comes when it was seen to
    # run; of groups of this protocol the client can't see the members.
    send(servers, TOPIC, amounts[2 * LEG : -1])
    with ThreadPoolExecutor(1) as background:
        running = background.submit(
            run_in_kafka_streams, servers, APPLICATION, home / "second", TOPIC, LEG, protocol="streams"
        )
        try:
            wait_until_committed(cluster, 3 * LEG - 1)
            while_running = main([*changelog[1:], "restore", servers, "none", *ID, "--store", "totals:headers-kv"])
        finally:
            send(servers, TOPIC, amounts[-1:])
        running.result()
    last = cluster.committed(APPLICATION)[TOPIC]
    page.run(*changelog, "restore")
    page.run(*changelog, "restore")
    printed = json.loads(page.run(*changelog, "offsets"))
    return Journey(
        amounts, in_spark, content(home / "TASKS"), made, first, while_running, last, printed, home / "OLDER", page.left
    )


def wait_until_committed(cluster: Cluster, records: int) -> None:
    """Wait until the application has committed that it has processed so many records."""
    give_up_s, seen = time.monotonic() + 120, 0
    while seen < records:
        assert time.monotonic() < give_up_s, f"the application does not get on from {seen}"
        time.sleep(0.1)
        with suppress(GroupOffsetsError):  # it is just committing
            seen = sum(cluster.committed(APPLICATION)[TOPIC].values())


def run_in_spark(spark: SparkSession, servers: str, home: Path, program: Topology, made: dict[str, Any]) -> None:
    """Run a program as a query on the state that was made, until it has processed all there is."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", ",".join(json.loads(made["startingOffsets"])))
        .option("startingOffsets", made["startingOffsets"])
        .option("includeHeaders", "true")
        .load()
    )
    query = (
        stateful(records, program, shards=made["shards"], state_location=home / "STATE", local_dir=str(home / "local"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(home / "CHECKPOINT"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_spark_goes_on_with_what_kafka_streams_had(journey: Journey) -> None:
    assert journey.made["stores"] == [
        {"name": "totals", "kind": "headers-kv", "records": LEG},
        {"name": "windows", "kind": "headers-window", "records": LEG},
        {"name": "sessions", "kind": "headers-session", "records": LEG},
        {"name": "counts", "kind": "ts-kv", "records": LEG},
        {"name": "versions", "kind": "versioned", "records": LEG},
    ]
    assert sum(journey.committed_at_first.values()) == LEG
    assert json.loads(str(journey.made["startingOffsets"])) == {TOPIC: by_name(journey.committed_at_first)}
    assert journey.in_spark == Model.of(journey.amounts[: 2 * LEG])


def test_kafka_streams_goes_on_with_what_spark_had(journey: Journey) -> None:
    expected = Model.of(journey.amounts)
    assert journey.back_in_kafka_streams == expected
    assert expected.totals.keys() < expected.counts.keys(), "some total was deleted, so tombstones have travelled, too"
    assert sum(journey.committed_at_last.values()) == len(journey.amounts)
    assert journey.printed_offsets == {TOPIC: by_name(journey.committed_at_last)}


def test_a_running_application_is_left_alone(journey: Journey) -> None:
    assert journey.while_running == ExitCode.IN_USE


def test_a_store_without_headers_is_restored_from_the_changelog_of_one_with_headers(journey: Journey) -> None:
    state = open_state(str(journey.without_headers))
    (spec,) = state.specs()
    entries = []
    for part in state.parts:
        with state.open(part, [spec]) as stores:
            entries += entry_documents(stores[spec.name])
    expected = Model.of(journey.amounts).totals
    assert {bytes.fromhex(entry["key"]).decode(): entry["timestamp"] for entry in entries} == {
        customer: total.timestamp_ms for customer, total in expected.items()
    }
    assert all("headers" not in entry for entry in entries)


def test_every_command_of_the_page_was_run(journey: Journey) -> None:
    assert journey.commands_left == []


@pytest.mark.usefixtures("java")
def test_a_program_in_stages_moves_to_spark_and_back(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys change before counts, and two tables are joined by a foreign key: stores are in three stages, one twice."""
    servers, leg = broker.bootstrap_servers, purchases_application.LEG
    changes = drawn_changes(3, (int(time.time()) - 1_200) * 1000)
    for topic in (*INPUT, OUTPUT):
        Cluster(servers).create_topic(topic, PARTITIONS, {})
    words = {"BROKER": servers, "CHECKPOINT": str(tmp_path / "CHECKPOINT")}
    page = PageCommands(PAGE, words, lambda heading: heading == IN_STAGES)
    (program,) = (block for block in blocks_of(PAGE) if block.file)
    (tmp_path / "purchases.py").write_text(program.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    purchases_application.send(servers, changes[:leg])
    with running_in_kafka_streams(servers, tmp_path / "first"):
        pass
    page.run("upgrade_tools", "changelog", "to-state")
    made = json.loads((tmp_path / "made.json").read_text())
    assert made["shards"] == {f"stage-{number}": PARTITIONS for number in range(3)}
    check_purchases(changes[:leg], tmp_path / "STATE")

    purchases_application.send(servers, changes[leg : 2 * leg])
    run_in_spark(spark, servers, tmp_path, importlib.import_module("purchases").topology(), made)
    page.run("statestore.spark", "pointers")
    page.run("statestore.spark", "offsets")
    check_purchases(changes[: 2 * leg], tmp_path / "STATE", tmp_path / "pointers")

    page.run("upgrade_tools", "changelog", "emit")
    page.run("upgrade_tools", "changelog", "offsets")
    assert page.left == []
    purchases_application.send(servers, changes[2 * leg :])
    with running_in_kafka_streams(servers, tmp_path / "second"):
        pass
    again = ["--application-id", purchases_application.APPLICATION, "--program", "purchases:topology"]
    assert main(["changelog", "to-state", servers, str(tmp_path / "again"), *again]) == 0
    check_purchases(changes, tmp_path / "again")


def check_purchases(changes: Sequence[Change], path: Path, pointers: Path | None = None) -> None:
    """Check what the stores of a state in stages hold; those of subscriptions are of the library."""
    model, found = Purchases.of(changes), purchases_in(path, pointers)
    held_back = found.pop("slow-store")
    tables = {"orders": model.orders, "customers": model.customers, "counts": model.counts, "joined": model.joined}
    assert found == {"minutes": dict(model.minutes), **{name: dict(table) for name, table in tables.items()}}
    assert held_back, "what came last is held back for a minute"
    assert held_back.items() <= model.counts.items()


def purchases_in(path: Path, pointers: Path | None) -> dict[str, dict[Any, Any]]:
    recorded = None if pointers is None else [*map(CommitPointer.from_json, pointers.read_text().splitlines())]
    found: dict[str, dict[Any, Any]] = {}
    for state in open_states(str(path), StateOptions(pointers=recorded)):
        specs = [spec for spec in state.specs() if spec.name in VALUES]
        entries: dict[str, dict[Any, Any]] = {spec.name: {} for spec in specs}
        for part in state.parts:
            with state.open(part, specs) as stores:
                for name, store in stores.items():
                    entries[name].update(shown(entry, VALUES[name]) for entry in entry_documents(store))
        for name, held in entries.items():
            assert found.setdefault(name, held) == held, f"the copy of {name} is another"
    return found


def shown(entry: dict[str, Any], value_of: Callable[[bytes], Any]) -> tuple[Any, Any]:
    key, value = (bytes.fromhex(entry[part]) for part in ("key", "value"))
    return (key.decode(), entry["start"]) if "start" in entry else key.decode(), value_of(value)


def count_of(value: bytes) -> int:
    return int.from_bytes(value, "big")


def held_count_of(value: bytes) -> int:
    return count_of(decode_logged_record(value)[0].new or b"")


VALUES = {
    **dict.fromkeys(("orders", "customers", "joined"), bytes.decode),
    **dict.fromkeys(("counts", "minutes"), count_of),
    "slow-store": held_count_of,
}
"""What the values of each store are."""


def by_name(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
