"""Spark standalone: a master and two workers as processes of their own, each worker with a disk of its own.

Drivers are processes too. Drivers and workers are killed in the middle of a batch, and a worker is stopped and comes
back when the query has gone on without it: a zombie, which writes what it was about to write.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orders import Order, seeded_orders
from tests.support.clusters.clusters import ONE_OF_ALL_KILLS, Application, SharedApplication, StandaloneCluster
from tests.support.clusters.faults import DELTA, PROCESS, Fault
from tests.support.clusters.jobs import OrderJob, expected_contents
from tests.support.clusters.processes import ProcessSession, wait_until
from tests.support.spark.queries import SECOND_CHECKPOINT_FORMAT

pytestmark = [pytest.mark.slow, ONE_OF_ALL_KILLS]

ORDERS = seeded_orders(120)
BATCHES = [ORDERS[start : start + 30] for start in range(0, 120, 30)]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone"), cores=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: StandaloneCluster) -> StandaloneCluster:
    """The cluster with two workers, whatever the test before has done to them."""
    shared_cluster.have_workers(2)
    return shared_cluster


@pytest.fixture(scope="module")
def shared(shared_cluster: StandaloneCluster) -> Iterator[SharedApplication]:
    shared = SharedApplication(shared_cluster.home, shared_cluster.url, shared_cluster.spark_home)
    yield shared
    shared.stop()


@pytest.fixture
def job(tmp_path: Path, via: str) -> OrderJob:
    return OrderJob(tmp_path, via)


def run_until_struck(
    shared: SharedApplication, job: OrderJob, batches: list[list[Order]], moment: str, when: str, first_batch: int
) -> tuple[Application, Fault, dict[str, Any]]:
    """Run the job on batches until it holds at a moment; return who runs it, what holds it, and where."""
    job.add(batches)
    fault = job.add_fault(moment, when, "hold", first_batch)
    application = shared.running()
    return application, fault, application.run_until_struck(job, fault)


def worker_of(cluster: StandaloneCluster, pid: int) -> ProcessSession:
    return next(worker for worker in cluster.workers if pid in worker.pids())


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_worker_is_killed_with_its_executors(
    cluster: StandaloneCluster, shared: SharedApplication, job: OrderJob
) -> None:
    application, _, struck = run_until_struck(shared, job, BATCHES, PROCESS, "before", first_batch=2)
    worker_of(cluster, struck["jvm_pid"]).kill()
    result = application.result(job)
    assert result.contents == expected_contents(ORDERS)
    for shard, batches in job.executors().items():
        later = set.union(*(executors for batch, executors in batches.items() if batch > struck["batch"]))
        assert later, f"shard {shard} was not processed again"
        assert struck["executor"] not in later


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_stopped_worker_comes_back_as_a_zombie(
    cluster: StandaloneCluster, shared: SharedApplication, job: OrderJob
) -> None:
    # In Spark's first format the zombie's JVM may get to overwrite what the query has gone on with.
    job.settings = SECOND_CHECKPOINT_FORMAT
    application, fault, struck = run_until_struck(shared, job, BATCHES[:2], DELTA, "before", first_batch=1)
    worker = worker_of(cluster, struck["jvm_pid"])
    worker.signal(signal.SIGSTOP)
    assert application.result(job).contents == expected_contents(ORDERS[:60])

    # First the Python worker alone, so that nobody can keep it from writing, then all the others.
    fault.release()
    worker.signal(signal.SIGCONT, [struck["worker_pid"]])
    application.wait_until(fault.written, "the zombie does not write")
    worker.signal(signal.SIGCONT)
    wait_until(lambda: struck["jvm_pid"] not in worker.pids(), "the zombie does not end")
    job.add(BATCHES[2:])
    result = application.run(job)
    assert result.contents == expected_contents(ORDERS)
    written = fault.written()
    assert written is not None
    assert written["name"] in job.durable_files("deltas") - result.deltas, "what the zombie wrote counts"


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_the_driver_is_killed_in_the_middle_of_a_batch_and_restarted(
    cluster: StandaloneCluster, shared: SharedApplication, job: OrderJob
) -> None:
    first, _, struck = run_until_struck(shared, job, BATCHES, DELTA, "after", first_batch=2)
    first.processes.kill()
    assert not (job.home / "checkpoint" / "commits" / str(struck["batch"])).exists(), "the batch was to be under way"

    second = shared.running()
    assert second is not first
    result = second.run(job)
    assert result.contents == expected_contents(ORDERS)
    assert struck["moment"] in job.durable_files("deltas") - result.deltas, "what the first driver's task wrote counts"
