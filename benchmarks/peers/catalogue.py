"""The peers: how each is started. To add one, add an entry to PEERS; a Spark query only needs its operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.peers.environment import environment_python
from benchmarks.peers.failure import PeerError, tail
from benchmarks.peers.run import ROOT, progress_file
from statestore.testing.jars import java_command, kafka_streams_jars

BUILD: Final = ROOT / "build" / "peers"
_HERE: Final = Path(__file__).parent
_SLOW_RECORDS: Final = 60_000


class Place(NamedTuple):
    """What a run of a peer is given. The topics are there; `scratch` is an empty directory that goes with it."""

    servers: str
    input_topic: str
    output_topic: str
    scratch: Path
    records_per_batch: int

    @property
    def progress(self) -> Path:
        """Where a peer that `tells_progress` keeps how many records are done."""
        return progress_file(self.scratch)


@dataclass(frozen=True)
class Peer:
    """An engine with the operator in it."""

    name: str
    engine: str
    command: Callable[[Place], list[str]]
    """Returns the command that starts it. Raises PeerError if what it needs can't be had."""
    is_checked: bool = True
    """Whether what comes out is the workload's, with its counts, and is checked."""
    tells_progress: bool = False
    """Whether it says how many records are done. Of others that is what they have put out: one for each."""
    most_records: int | None = None
    """The first so many records of the workload, for one that would take minutes for all; None is all."""

    def records(self, asked: int) -> int:
        """Return how many records it is given when so many are asked for."""
        return min(asked, self.most_records or asked)


def _streams(guarantee: str, program_name: str = "CountAndKeep", *more: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        classes = _compiled(_HERE / f"{program_name}.java")
        memory = ["-Xms512m", "-Xmx512m"]
        program = [java_command(), *memory, "-cp", f"{kafka_streams_jars()}/*:{classes}", program_name]
        topics = [place.input_topic, place.output_topic]
        return [*program, place.servers, place.output_topic, str(place.scratch / "state"), *topics, guarantee, *more]

    return command


def _compiled(program: Path) -> Path:
    """Return the directory of a program's classes, compiled anew: to start it from its source would take longer."""
    classes = BUILD / "classes"
    compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = ":".join(str(jar) for jar in sorted(kafka_streams_jars().glob("*.jar")))  # it takes no pattern here
    command = [*compiler, "-d", str(classes), "-cp", jars, str(program)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise PeerError(f"{program.name} does not compile", output=tail(done.stdout))
    return classes


def _quix(place: Place) -> list[str]:
    python = environment_python(BUILD / "environment")
    # Not resolved: a link is what tells Python that it is an environment's.
    program = [str(python), str(_HERE / "quix_peer.py")]
    return [
        *program,
        place.servers,
        place.output_topic,
        str(place.scratch / "state"),
        place.input_topic,
        place.output_topic,
    ]


def _spark(operator: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        program = [sys.executable, "-m", "benchmarks.peers.spark_peer", operator]
        where = [place.servers, place.input_topic, place.output_topic, str(place.scratch)]
        return [*program, *where, str(place.records_per_batch)]

    return command


_ALL: Final = (
    Peer("streams-alo", "Kafka Streams, at least once", _streams("at_least_once")),
    Peer("streams-eos", "Kafka Streams, exactly once", _streams("exactly_once_v2")),
    Peer("quix", "Quix Streams, bytes state", _quix),
    Peer(
        "spark-python-state",
        "Spark, own Python state by pandas",
        _spark("spark-python-state"),
        most_records=_SLOW_RECORDS,
    ),
    Peer(
        "spark-python-state-rows",
        "Spark, own Python state by rows",
        _spark("spark-python-state-rows"),
        most_records=_SLOW_RECORDS,
    ),
    Peer("spark-pass-through", "Spark, no state, no Python", _spark("spark-pass-through"), is_checked=False),
    Peer("spark-map-arrow", "Spark, no state, untouched through Python", _spark("spark-map-arrow"), is_checked=False),
    Peer("statestore-scalar", "statestore, a record at a time", _spark("statestore-scalar")),
    Peer("statestore-batch", "statestore, by columns", _spark("statestore-batch")),
)
PEERS: Final = {peer.name: peer for peer in _ALL}
"""By name, in the order in which they run."""


def _of_dsl(operator: str) -> tuple[Peer, Peer]:
    streams = _streams("at_least_once", "Operators", operator)
    own = f"statestore-dsl-{operator}"

    def command(place: Place) -> list[str]:
        return [*streams(place), str(place.progress)]

    return (
        Peer(
            f"kafka-dsl-{operator}", "Kafka Streams' DSL, at least once", command, is_checked=False, tells_progress=True
        ),
        Peer(own, "statestore's DSL", _spark(own), is_checked=False, tells_progress=True),
    )


DSL_PEERS: Final = {
    name: _of_dsl(operator)
    for name, operator in {
        "count": "count",
        "tumbling windows": "tumbling",
        "hopping windows, 3 a record": "hopping",
        "tumbling windows, on close": "final_windows",
        "tumbling windows, by suppress()": "suppressed_windows",
        "sessions": "sessions",
        "sessions, on close": "final_sessions",
        "stream-stream join": "joined",
        "stream-stream left join": "left_joined",
        "word count, 5 words a record": "word_count",
        "foreign-key join, 10 left to 1 right": "foreign_key_joined",
    }.items()
}
"""By operator, Kafka's DSL and this one, which put out each change: benchmarks/dsl.py runs them."""
