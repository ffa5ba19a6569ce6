"""Exactly once, first proof: attempts that fail at the worst moments change nothing.

Each driver has a task that is done again and a query that is started again; all else is judged by the same code.

Each fault strikes a given number of times, counted in files, because it strikes in processes that die of it. The
session retries a failed task once; a fault that strikes twice fails the query, which is then started again.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from orders import RunningTotal, expected_totals, running_total_topology, seeded_orders
from statestore import Record, Topology
from statestore.recovery.commit.pointer import CommitPointer
from statestore.spark import read_pointers, stateful
from tests.support.spark.queries import OrderQuery

ORDERS = seeded_orders(150)
BATCHES = [ORDERS[start : start + 30] for start in range(0, 150, 30)]


def strikes(directory: Path, times: int) -> bool:
    """Return True the first `times` times it is called with `directory`, across processes."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(times):
        try:
            (directory / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


class KilledInMidBatch(RunningTotal):
    """Kills its own Python worker, with SIGKILL, after it has written to the store."""

    offset = 5
    directory: Path
    times: int

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        super().process(record)
        if self.context.record_metadata.offset >= self.offset and strikes(self.directory, self.times):
            os.kill(os.getpid(), signal.SIGKILL)


def killing_topology(directory: Path, times: int) -> Topology:
    topology = running_total_topology()
    kind = type("Killing", (KilledInMidBatch,), {"directory": directory, "times": times})
    topology.processors["total"].supplier = kind
    return topology


class OrderQueryThatFailsLate(OrderQuery):
    """Fails tasks after their shards' deltas were written and before Spark could commit them."""

    def run_failing(self, times: int) -> None:
        directory = self.home / "strikes"

        def fail_at_the_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                yield batch
            # The input has ended: the shard calls of this task are done, and their deltas are in the location.
            if rows and strikes(directory, times):
                raise RuntimeError("failed after the delta was written")

        rows = stateful(
            self.records(),
            running_total_topology(),
            shards=2,
            state_location=self.home / "state",
            local_dir=str(self.home / "local"),
            via=self.via,
        )
        query = (
            rows.mapInArrow(fail_at_the_end, rows.schema)
            .writeStream.format("noop")
            .option("checkpointLocation", str(self.home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def orphans(query: OrderQuery) -> int:
    """Return how many delta files no commit pointer names."""
    pointers = [
        CommitPointer.from_json(row.pointer) for row in read_pointers(query.spark, query.home / "checkpoint").collect()
    ]
    committed = {delta.name for pointer in pointers for delta in pointer.deltas}
    files = {str(path.relative_to(query.home / "state")) for path in (query.home / "state").glob("shards/*/deltas/*")}
    assert committed <= files
    return len(files - committed)


@pytest.fixture
def late(spark: SparkSession, tmp_path: Path, via: str) -> OrderQueryThatFailsLate:
    return OrderQueryThatFailsLate(spark, tmp_path, via)


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_retried_task_after_its_delta_was_written(late: OrderQueryThatFailsLate) -> None:
    late.add(*BATCHES[:3])
    late.run_failing(times=1)
    assert orphans(late) > 0, "the fault did not strike after a delta"
    assert late.totals() == expected_totals(ORDERS[:90])


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_restarted_query_after_deltas_were_written(late: OrderQueryThatFailsLate) -> None:
    late.add(*BATCHES[:2])
    late.run()
    late.add(BATCHES[2])
    with pytest.raises(StreamingQueryException, match="failed after the delta was written"):
        late.run_failing(times=1000)
    assert orphans(late) > 0
    assert late.totals() == expected_totals(ORDERS[:60]), "the failed batch must not show"
    late.run()
    assert late.totals() == expected_totals(ORDERS[:90])


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_worker_killed_in_mid_batch_and_retried(order_query: OrderQuery) -> None:
    order_query.add(*BATCHES[:3])
    order_query.run(killing_topology(order_query.home / "strikes", times=1))
    assert len(list((order_query.home / "strikes").iterdir())) == 1
    assert order_query.totals() == expected_totals(ORDERS[:90])


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_worker_killed_until_the_query_fails_and_is_restarted(order_query: OrderQuery) -> None:
    order_query.add(BATCHES[0])
    order_query.run()
    order_query.add(*BATCHES[1:3])
    with pytest.raises(StreamingQueryException):
        order_query.run(killing_topology(order_query.home / "strikes", times=1000))
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS[:90])


def run_on_from(order_query: OrderQuery, kept: str) -> None:
    """Run two batches, keep the checkpoint they came to under another name, and run two more."""
    order_query.add(*BATCHES[:2])
    order_query.run()
    shutil.copytree(order_query.home / "checkpoint", order_query.home / kept)
    order_query.add(*BATCHES[2:4])
    order_query.run()


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_restart_from_an_older_checkpoint(order_query: OrderQuery) -> None:
    home = order_query.home
    run_on_from(order_query, "older")
    assert order_query.totals() == expected_totals(ORDERS[:120])

    shutil.rmtree(home / "checkpoint")
    shutil.move(home / "older", home / "checkpoint")
    assert order_query.totals() == expected_totals(ORDERS[:60])
    order_query.add(BATCHES[4])
    with pytest.raises(StreamingQueryException, match=r"CheckpointBehindError.*accept_older_checkpoint"):
        order_query.run()
    order_query.run(accept_older_checkpoint=True)
    assert order_query.totals() == expected_totals(ORDERS)
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS), "given up once is given up for good"


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_query_that_is_started_twice_from_copies_of_a_checkpoint(order_query: OrderQuery) -> None:
    run_on_from(order_query, "copy")
    with pytest.raises(StreamingQueryException, match="CheckpointBehindError"):
        order_query.run(checkpoint="copy")
    order_query.add(BATCHES[4])
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)
