"""Runs programs of Kafka Streams' DSL through its own TopologyTestDriver, with tests/java/RunDsl.java."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.java.driver import Step, results_of
from tests.support.java.program import PROGRAMS
from tests.support.twins.dsl_programs import Program

PROGRAM = PROGRAMS / "RunDsl.java"


@dataclass(frozen=True)
class DslScenario:
    """A program of the DSL and what is done with its driver.

    Its stores there are on RocksDB if they are to be `persistent`, else in memory; versioned ones always are on
    RocksDB. `persistent_here` says so of stores here, where they do the same in memory. Without `caching`, stores have
    no cache; `config` is further configuration of Kafka Streams.
    """

    program: Program
    steps: tuple[Step, ...] = ()
    persistent: bool = False
    caching: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    initial_wall_clock_ms: int = 1000
    persistent_here: bool = False

    def to_json(self, state_dir: Path) -> dict[str, Any]:
        return {
            "program": self.program.statements,
            "steps": self.steps,
            "persistent": self.persistent,
            "caching": self.caching,
            "config": {**self.config, "state.dir": str(state_dir)},
            "initial_wall_clock_ms": self.initial_wall_clock_ms,
        }


def files_in_memory() -> str | None:
    """A directory of a file system in memory, where Linux has it: some hundred scenarios open several RocksDBs each."""
    shared_memory = "/dev/shm"
    return shared_memory if os.access(shared_memory, os.W_OK) else None


def run_dsl_with_kafka_streams(scenarios: Sequence[DslScenario]) -> list[dict[str, Any]]:
    """What each scenario gives: describe, emitted, dropped, stores and topics, or error where there is no driver.

    One Java virtual machine runs them all. Raises what `run_java_program` raises.
    """
    with tempfile.TemporaryDirectory(dir=files_in_memory()) as states:
        asked = [scenario.to_json(Path(states, str(number))) for number, scenario in enumerate(scenarios)]
        return results_of(PROGRAM, asked)
