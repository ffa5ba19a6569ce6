"""Several executors, and the loss of one at the worst moments: SIGKILL to the executor and all its Python processes.

One application serves all tests of this file, as one does a day's queries: who was killed is replaced by Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orders import seeded_orders
from tests.support.clusters.clusters import ONE_OF_ALL_KILLS, Application
from tests.support.clusters.faults import DELTA, PROCESS, SNAPSHOT_FILE, SNAPSHOT_MANIFEST
from tests.support.clusters.jobs import OrderJob, expected_contents

pytestmark = [pytest.mark.slow, ONE_OF_ALL_KILLS]

ORDERS = seeded_orders(150)
BATCHES = [ORDERS[start : start + 30] for start in range(0, 150, 30)]


@pytest.fixture
def job(tmp_path: Path, via: str) -> OrderJob:
    return OrderJob(tmp_path, via)


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_an_executor_is_killed_during_processing_and_shards_move(application: Application, job: OrderJob) -> None:
    job.add(BATCHES[:4])
    fault = job.add_fault(PROCESS, first_batch=2)
    result = application.run(job)
    assert result.contents == expected_contents(ORDERS[:120])
    struck = fault.struck()
    assert struck is not None
    assert struck["batch"] == 2
    for batches in job.executors().values():
        assert struck["executor"] not in batches[3]
    moved = [shard for shard, batches in job.executors().items() if len(set.union(*batches.values())) > 1]
    assert moved, "each shard was all the time on one executor"


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_an_executor_is_killed_during_the_delta_write(application: Application, job: OrderJob) -> None:
    job.add(BATCHES[:4])
    faults = [
        job.add_fault(DELTA, when, first_batch=batch)
        for batch, when in enumerate(("before", "middle", "after"), start=1)
    ]
    result = application.run(job)
    assert result.contents == expected_contents(ORDERS[:120])
    strikes = [struck for fault in faults if (struck := fault.struck())]
    assert [struck["batch"] for struck in strikes] == [1, 2, 3]
    before, middle, after = (struck["moment"] for struck in strikes)
    there = job.durable_files("deltas")
    assert before not in there
    assert Path(middle).relative_to(job.home / "state").as_posix() in there, "half a file was left"
    assert after in there - result.deltas, "a whole file was left that nothing commits"
    assert result.deltas <= there


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_an_executor_is_killed_during_a_snapshot(application: Application, job: OrderJob) -> None:
    job.recovery = {"snapshot_every_deltas": 1, "snapshot_budget_ms": 2_000}
    # Many small ones: after each kill a snapshot is begun anew, on a disk that has none.
    job.add([ORDERS[start : start + 12] for start in range(0, 150, 12)])
    moments = ((SNAPSHOT_FILE, "before"), (SNAPSHOT_FILE, "middle"), (SNAPSHOT_MANIFEST, "middle"))
    faults = [job.add_fault(moment, when) for moment, when in (*moments, (SNAPSHOT_MANIFEST, "after"))]
    result = application.run(job)
    assert result.contents == expected_contents(ORDERS)
    assert all(fault.struck() for fault in faults)
    assert result.snapshots > 0, "no snapshot was made after all"
