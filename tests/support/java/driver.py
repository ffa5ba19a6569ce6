"""Runs scenarios through Kafka Streams' own TopologyTestDriver, with tests/java/RunTopologies.java."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.java.program import PROGRAMS, JavaProgramError, run_java_program

PROGRAM = PROGRAMS / "RunTopologies.java"

Step: TypeAlias = "tuple[Any, ...]"
"""What is done with a driver, as RunTopologies.java takes it: the functions below make them."""


@dataclass(frozen=True)
class Scenario:
    """What is done with a driver of a topology, which has a name in RunTopologies.java and in twin_topologies.py.

    The stores are on RocksDB if they are to be `persistent`, else in memory; versioned ones always are on RocksDB.
    """

    topology: str
    steps: tuple[Step, ...] = ()
    initial_wall_clock_ms: int = 1000
    persistent: bool = False
    graph: tuple[tuple[Any, ...], ...] = ()
    """What the topology named "graph" is made of, as RunTopologies.java takes it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "steps": self.steps,
            "initial_wall_clock_ms": self.initial_wall_clock_ms,
            "persistent": self.persistent,
            "graph": self.graph,
        }


def pipe(
    topic: str,
    key: str | None,
    value: str | bytes | None,
    timestamp_ms: int | None,
    headers: Sequence[tuple[str, str | None]] = (),
) -> Step:
    return "pipe", topic, _hex(key), _hex(value), timestamp_ms, tuple((name, _hex(held)) for name, held in headers)


def advance(advance_ms: int) -> Step:
    return "advance", advance_ms


def read(topic: str) -> Step:
    """Read all records of a topic: they are the step's outcome."""
    return "read", topic


def read_one(topic: str) -> Step:
    return "read_one", topic


def put(store: str, key: str | None, value: str | None) -> Step:
    """Write to a key-value store, which shows plain values, from outside of the topology."""
    return "put", store, _hex(key), _hex(value)


def input_topic(topic: str, start_ms: int, auto_advance_ms: int) -> Step:
    """Begin to pipe into a topic anew. Without it, the time of a topic begins at 0 and stays there."""
    return "input", topic, start_ms, auto_advance_ms


def advance_time(topic: str, advance_ms: int) -> Step:
    return "advance_time", topic, advance_ms


def run_with_kafka_streams(scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
    """What each scenario gives: describe, steps, stores and topics, or error where there is no driver.

    One Java virtual machine runs them all. An error is a list: the exception and its causes, each as class name, colon,
    message. Raises what `run_java_program` raises, for a scenario that makes no sense too.
    """
    return results_of(PROGRAM, [scenario.to_json() for scenario in scenarios])


def results_of(program: Path, scenarios: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a program that takes a JSON list of scenarios says of each. Raises what `run_java_program` raises."""
    results: list[dict[str, Any]] = json.loads(run_java_program(program, lines=json.dumps(scenarios)))
    if len(results) != len(scenarios):
        raise JavaProgramError(program, 0, output=f"{len(results)} results of {len(scenarios)} scenarios")
    return results


def _hex(data: str | bytes | None) -> str | None:
    if data is None:
        return None
    return (data.encode() if isinstance(data, str) else data).hex()
