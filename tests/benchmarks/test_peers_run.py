"""A run of a peer from start to end: stand-ins that only take their time, and real Kafka Streams on few records."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import rounds as rounds_module
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.failure import PeerError
from benchmarks.peers.place import Place, committed_records, told_records
from benchmarks.peers.plans import FIRST
from benchmarks.peers.rounds import Rounds
from benchmarks.peers.run import RunFigures, run_peer
from statestore.testing.kafka_broker import KafkaBroker
from upgrade_tools.changelogs.cluster import Cluster

# Works now and then, in itself and in a process that it starts.
WORKS = "import os, time\nos.fork()\nwhile True: time.sleep(0.01); sum(range(50_000))"


def run(command: list[str], directory: Path, records: int, output_records: Callable[[], int]) -> RunFigures:
    return run_peer(
        command,
        records,
        steady_from=0.25,
        output_records=output_records,
        broker_session=os.getsid(0),
        scratch=directory,
        log=directory / "log",
        say=lambda said: None,
    )


def processes_with(argument: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += [process.name] if argument in (process / "cmdline").read_text() else []
        except OSError:
            continue
    return found


def test_figures_are_those_from_a_quarter_of_the_records_on(tmp_path: Path) -> None:
    asked_s: list[float] = []
    counts = [0, 10, *range(50, 201, 10)]

    def output_records() -> int:
        """Some more each time, and the last count for as long as it takes."""
        asked_s.append(time.monotonic())
        return counts[min(len(asked_s), len(counts)) - 1]

    mark = str(tmp_path)
    begun_s = time.monotonic()
    figures = run([sys.executable, "-c", WORKS, mark], tmp_path, 200, output_records)
    # It looks at the clock between being told and asking again, however long that takes.
    quarter, end = counts.index(50), counts.index(200)
    longest_s, shortest_s = asked_s[end + 1] - asked_s[quarter], asked_s[end] - asked_s[quarter + 1]
    assert 150 / longest_s <= figures.records_per_s <= 150 / shortest_s
    assert 0 < figures.first_output_s <= asked_s[counts.index(10) + 1] - begun_s
    assert figures.first_output_s < figures.total_s <= asked_s[end + 1] - begun_s
    assert figures.python_us > 0
    assert figures.java_us == 0
    assert figures.peak_pss_mb > 1
    assert processes_with(mark) == []


def test_records_done_are_those_of_batches_that_are_committed(tmp_path: Path) -> None:
    place = Place("broker:9092", ("left-9", "right-9"), "out", tmp_path, 4)
    assert Place.from_arguments(*place.arguments) == place
    assert committed_records(place) == told_records(place) == 0
    for name in ("offsets", "commits"):
        (place.checkpoint / name).mkdir(parents=True)
    for batch, end in ((9, 3), (10, 5), (11, 9)):
        ends = f'{{"left-9":{{"0":{end},"1":1}},"right-9":{{"0":1}}}}'
        (place.checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
    for name in ("9", "10", ".11.crc"):
        (place.checkpoint / "commits" / name).write_text("v1\n{}")
    assert committed_records(place) == 7


def test_a_peer_that_ends_early_raises_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo first; echo why; exit 3"]
    with pytest.raises(PeerError, match="why") as raised:
        run(command, tmp_path, 10, lambda: 7)
    assert (raised.value.problem, raised.value.output) == ("ended after 7 records", "first\nwhy")


def test_records_that_come_at_once_are_no_rate(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="more records are needed"):
        run(["sleep", "600"], tmp_path, 10, lambda: 10)


def test_a_run_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    mark = str(tmp_path)
    looks = 0

    def output_records() -> int:
        nonlocal looks
        looks += 1
        if looks == 5:
            assert len(processes_with(mark)) == 2
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", WORKS, mark], tmp_path, 10, output_records)
    assert processes_with(mark) == []


def test_kafka_streams_runs_and_its_output_is_right(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rounds_module, "BUILD", tmp_path)
    cluster = Cluster(broker.bootstrap_servers)
    assert broker.process_group is not None
    peer = PEERS["streams-alo-2"]
    rounds = Rounds(replace(FIRST, records=3_000, rounds=2), cluster, broker.process_group, tmp_path)
    rounds.fill(peer)
    rounds.ask_broker()
    before = cluster.topics()

    rounds.run(peer, 1)
    # One that can't be started fails, with what it said, and is not tried again.
    broken = replace(peer, name="broken", command=lambda place: ["sh", "-c", "echo why; exit 1"])
    rounds.run(broken, 1)
    rounds.run(broken, 2)

    (figures,) = rounds.outcome.runs["streams-alo-2"]
    assert figures.records_per_s > 0
    assert figures.java_us > 0
    assert figures.python_us == 0
    assert figures.broker_us > 0
    assert figures.looking_cores > 0
    assert rounds.outcome.broker_looking_cores > 0
    assert rounds.outcome.runs.get("broken", []) == []
    assert rounds.outcome.failures == {"broken": "ended after 0 records"}
    said = capsys.readouterr()
    assert "why" in said.err
    assert "broken, round 2 of 2: left out, it has failed" in said.out
    assert set(cluster.topics()) - set(before) <= {"__consumer_offsets"}, "a peer's topics are left"
