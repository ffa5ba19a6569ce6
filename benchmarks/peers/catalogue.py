"""The peers: how each is started. To add one, add an entry to PEERS; a Spark query only needs its operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.environment import environment_python
from benchmarks.peers.failure import PeerError, tail
from benchmarks.peers.place import Place, committed_records, told_records
from benchmarks.peers.run import ROOT
from statestore.testing.jars import java_command, kafka_streams_jars

BUILD: Final = ROOT / "build" / "peers"
_HERE: Final = Path(__file__).parent
_SLOW_RECORDS: Final = 60_000


@dataclass(frozen=True)
class Peer:
    """An engine with the operator in it."""

    name: str
    command: Callable[[Place], list[str]]
    """Returns the command that starts it. Raises PeerError if what it needs can't be had."""
    is_checked: bool = True
    """Whether what comes out is the workload's, with its counts, and is checked."""
    records_done: Callable[[Place], int] | None = None
    """How many records are done; None is as many as it has put out."""
    most_records: int | None = None
    """The first so many records of the workload, for one that would take minutes for all; None is all."""
    inputs: tuple[str, ...] = ("in",)
    """What the names of its input topics begin with, which records go to in turn."""

    def records(self, asked: int) -> int:
        """Return how many records it is given when so many are asked for."""
        return min(asked, self.most_records or asked)


def _streams(operator: str, guarantee: str, threads: int) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        java = [java_command(), "-Xms512m", "-Xmx512m", "-cp", f"{kafka_streams_jars()}/*:{_compiled()}"]
        return [*java, "Operators", *place.arguments, operator, guarantee, str(threads)]

    return command


def _compiled() -> Path:
    """Return the directory of the classes, compiled anew: to start from source would take longer."""
    classes = BUILD / "classes"
    compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = ":".join(str(jar) for jar in sorted(kafka_streams_jars().glob("*.jar")))  # it takes no pattern here
    command = [*compiler, "-d", str(classes), "-cp", jars, *map(str, _HERE.glob("*.java"))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise PeerError("Kafka Streams' programs do not compile", output=tail(done.stdout))
    return classes


def _quix(place: Place) -> list[str]:
    python = environment_python(BUILD / "environment")
    # Not resolved: a link is what tells Python that it is an environment's.
    return [str(python), str(_HERE / "quix_peer.py"), *place.arguments]


def _spark(operator: str) -> Callable[[Place], list[str]]:
    return lambda place: [sys.executable, "-m", "benchmarks.peers.spark_peer", operator, *place.arguments]


def _kafka(name: str, operator: str, guarantee: str = "at_least_once", **more: Any) -> tuple[Peer, Peer]:
    """Return Kafka Streams with an operator, on one thread and on two."""
    return (
        Peer(name, _streams(operator, guarantee, 1), **more),
        Peer(f"{name}-2", _streams(operator, guarantee, 2), **more),
    )


def _of_spark(name: str, **more: Any) -> Peer:
    return Peer(name, _spark(name), **more)


_ALL: Final = (
    *_kafka("streams-alo", "count_and_keep"),
    *_kafka("streams-eos", "count_and_keep", "exactly_once_v2"),
    Peer("quix", _quix),
    _of_spark("spark-python-state", most_records=_SLOW_RECORDS),
    _of_spark("spark-python-state-rows", most_records=_SLOW_RECORDS),
    _of_spark("spark-pass-through", is_checked=False),
    _of_spark("spark-map-arrow", is_checked=False),
    _of_spark("statestore-scalar"),
    _of_spark("statestore-batch"),
    _of_spark("statestore-scalar-eos"),
    _of_spark("statestore-batch-eos"),
)
PEERS: Final = {peer.name: peer for peer in _ALL}
"""By name, in the order in which they run."""


def _of_dsl(operator: str, *inputs: str) -> tuple[Peer, ...]:
    told: dict[str, Any] = {"is_checked": False, "inputs": inputs or ("in",)}
    own = _of_spark(f"statestore-dsl-{operator}", records_done=committed_records, **told)
    return (*_kafka(f"kafka-dsl-{operator}", operator, records_done=told_records, **told), own)


_SIDES: Final = ("left", "right")
DSL_PEERS: Final = {
    "count": _of_dsl("count"),
    "tumbling windows": _of_dsl("tumbling"),
    "hopping windows, 3 a record": _of_dsl("hopping"),
    "tumbling windows, on close": _of_dsl("final_windows"),
    "tumbling windows, by suppress()": _of_dsl("suppressed_windows"),
    "sessions": _of_dsl("sessions"),
    "sessions, on close": _of_dsl("final_sessions"),
    "stream-stream join": _of_dsl("joined", *_SIDES),
    "stream-stream left join": _of_dsl("left_joined", *_SIDES),
    "table-table join": _of_dsl("tables_joined", *_SIDES),
    "word count, 5 words a record": _of_dsl("word_count"),
    "foreign-key join, 10 left to 1 right": _of_dsl("foreign_key_joined"),
}
"""By operator, Kafka's DSL on one thread and on two, and this one, which put out each change."""
