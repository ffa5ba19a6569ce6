"""YARN: a driver in client mode, executors in containers, one of which is killed in the middle of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from orders import seeded_orders
from tests.support.clusters.clusters import ONE_OF_ALL_KILLS, Application
from tests.support.clusters.faults import PROCESS
from tests.support.clusters.jobs import OrderJob, expected_contents
from tests.support.clusters.yarn import YarnCluster

pytestmark = [pytest.mark.slow, ONE_OF_ALL_KILLS]


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_query_goes_on_in_another_container(tmp_path: Path, via: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = seeded_orders(90)
    job = OrderJob(tmp_path, via)
    job.add(orders[start : start + 30] for start in range(0, 90, 30))
    fault = job.add_fault(PROCESS, first_batch=1)
    with YarnCluster(tmp_path / "cluster") as cluster:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.settings))
        application = Application(tmp_path / "application", "yarn", cluster.spark_home, cluster.spark_settings)
        try:
            assert application.run(job).contents == expected_contents(orders)
        finally:
            application.processes.finish()
    struck = fault.struck()
    assert struck is not None
    assert struck["executor"] not in set.union(*(batches[2] for batches in job.executors().values()))
