"""What the shard call of each operator of statestore.dsl takes, without Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from dsl_operators import BATCH_MS, Operator, records_of
from in_process import ShardRounds

SHARDS = 2
ROUNDS = 4
"""The first of which fills the store."""


def round_of(operator: Operator, number: int, records: int, keys: int, *, batch_ms: int = BATCH_MS) -> pa.RecordBatch:
    """Return the records of a round: as many of each topic."""
    part = records // len(operator.topics)
    batches = [records_of(number, part, keys, topic, batch_ms=batch_ms) for topic in operator.topics]
    return pa.Table.from_batches(batches).drop_columns("amount").combine_chunks().to_batches()[0]


def shard_call_us(
    home: Path, operators: Sequence[Operator], records_per_shard: int, keys: int
) -> Mapping[str, Mapping[str, float]]:
    """Return microseconds of the shard call a record, by operator and form: thread time, best of the rounds in turn.

    Those of several stages have none.
    """
    found: dict[str, dict[str, float]] = {}
    for operator in operators:
        if any(make().repartition_topics for make in operator.here.values()):
            found[operator.name] = {}
            continue
        scratch = home / operator.name
        forms = {form: ShardRounds(scratch / form, make(), SHARDS) for form, make in operator.here.items()}
        least = dict.fromkeys(forms, float("inf"))
        for number in range(ROUNDS):
            rows = round_of(operator, number, records_per_shard * SHARDS, keys)
            for form, rounds in forms.items():
                us = rounds.us(rows, time.thread_time)["shard call"]
                least[form] = min(least[form], us) if number else least[form]
        found[operator.name] = least
        shutil.rmtree(scratch)
        said = ", ".join(f"{form}: {us:.2f}" for form, us in least.items())
        print(f"   {operator.name}, us a record of the shard call: {said}", flush=True)
    return found
