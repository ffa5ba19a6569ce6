"""What the shard call of each operator of statestore.dsl takes, by records and in columns, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from dsl_operators import Operator, records_of
from in_process import ShardRounds
from statestore import BatchProcessor, Topology

SHARDS = 2
ROUNDS = 4
"""The first of which fills the store."""


def paths_of(operator: Operator) -> dict[str, Callable[[], Topology]]:
    """Return what makes the topologies of an operator, by the path that they take."""
    paths: dict[str, Callable[[], Topology]] = {}
    for make in operator.here.values():
        nodes = make().processors.values()
        takes_columns = any(isinstance(node.supplier(), BatchProcessor) for node in nodes)
        paths.setdefault("columns" if takes_columns else "records", make)
    return paths


def round_of(operator: Operator, number: int, records: int, keys: int) -> pa.RecordBatch:
    """Return the records of a round: as many of each topic."""
    part = records // len(operator.topics)
    batches = [records_of(number * part, part, keys, topic) for topic in operator.topics]
    return pa.Table.from_batches(batches).drop_columns("amount").combine_chunks().to_batches()[0]


def shard_call_us(
    home: Path, operators: Sequence[Operator], records_per_shard: int, keys: int
) -> Mapping[str, Mapping[str, float]]:
    """Return microseconds of the shard call a record, by operator and path: thread time, best of the rounds in turn."""
    found: dict[str, dict[str, float]] = {}
    for operator in operators:
        rounds = {
            path: ShardRounds(home / operator.name / path, make(), SHARDS) for path, make in paths_of(operator).items()
        }
        least = dict.fromkeys(rounds, float("inf"))
        for number in range(ROUNDS):
            rows = round_of(operator, number, records_per_shard * SHARDS, keys)
            for path, run in rounds.items():
                us = run.us(rows, time.thread_time)["shard call"]
                least[path] = min(least[path], us) if number else least[path]
        found[operator.name] = least
        said = ", ".join(f"{path} {us:.2f}" for path, us in least.items())
        print(f"   {operator.name}: us a record of the shard call: {said}", flush=True)
    return found
