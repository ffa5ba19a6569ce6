"""The sink of transactions under Spark, on a real broker: SIGKILL at each step, and each record once and in order."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orders import Order, seeded_orders
from statestore import Serdes
from statestore.spark.kafka_sink import KafkaCluster
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.clusters.clusters import ONE_OF_ALL_KILLS, Application, SharedApplication
from tests.support.clusters.jobs import OrderJob, expected_contents, expected_output
from tests.support.kafka.transactions import STEPS, seen

pytestmark = pytest.mark.slow

BATCH = 15
MOMENTS = [(step, when) for step in STEPS for when in ("before", "after")]
ORDERS = seeded_orders(BATCH * (len(MOMENTS) + 2))
A_ROW_AT_A_TIME = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
LARGE_HEADER = ("large", bytes(600_000))
PARTITIONS = 2
_NUMBERS = count()


@pytest.fixture(params=[{}, {"packed": "yes"}], ids=["rows", "packed"])
def job(tmp_path: Path, broker: KafkaBroker, request: pytest.FixtureRequest) -> OrderJob:
    topic = f"transactions-{next(_NUMBERS)}"
    KafkaCluster(broker.bootstrap_servers).create_topic(topic, PARTITIONS, {})
    sink = {"servers": broker.bootstrap_servers, "topic": topic, "markers": f"{topic}-markers", **request.param}
    return OrderJob(tmp_path, "apply_in_pandas_with_state", sink=sink)


def add(job: OrderJob, batches: int) -> list[Order]:
    orders = ORDERS[: batches * BATCH]
    job.add(orders[start : start + BATCH] for start in range(0, len(orders), BATCH))
    return orders


def by_customer(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for customer, *row in rows:
        found.setdefault(customer, []).append(row)
    return found


def output_of(job: OrderJob) -> list[Any]:
    """What a read_committed consumer sees, each partition in its order."""
    assert job.sink is not None
    return [
        [
            message.key().decode(),
            Serdes.int64().deserialize(message.value()),
            message.timestamp()[1],
            [[name, value and value.decode()] for name, value in message.headers() or []],
        ]
        for messages in seen(job.sink["servers"], job.sink["topic"], PARTITIONS)
        for message in messages
    ]


def check(application: Application, job: OrderJob, orders: list[Order]) -> None:
    result = application.run(job)
    assert result.contents["store"] == expected_contents(orders)["store"]
    assert by_customer(output_of(job)) == by_customer(expected_output(orders))


def kill_in_turn(application: Application, job: OrderJob, kills: list[tuple[str, str, str]]) -> list[Any]:
    """Run a batch, and then one for each kill: what dies, at which step, and when. Return the batches that were struck.

    What a consumer sees, and what the store holds, is checked.
    """
    faults = [
        job.add_fault(step, when, action, first_batch=batch)
        for batch, (action, step, when) in enumerate(kills, start=1)
    ]
    check(application, job, add(job, len(kills) + 1))
    return [(fault.struck() or {}).get("batch") for fault in faults]


def kill_the_driver(shared: SharedApplication, job: OrderJob, step: str, when: str) -> bool:
    """Kill the driver in a batch and start it again; return whether it was. What comes out is checked as above."""
    fault = job.add_fault(step, when, "kill application")
    orders = add(job, 2)
    application = shared.running()
    application.start(job)
    application.processes.wait()
    was_struck = bool(fault.struck())
    check(shared.running(), job, orders)
    return was_struck


@ONE_OF_ALL_KILLS
def test_workers_and_executors_are_killed(application: Application, job: OrderJob) -> None:
    kills = [("kill worker", "produce", "after"), ("kill", "commit", "after")]
    assert kill_in_turn(application, job, kills) == [1, 2]


def test_the_driver_is_killed_with_all_executors(shared: SharedApplication, job: OrderJob) -> None:
    assert kill_the_driver(shared, job, "commit", "after")


@ONE_OF_ALL_KILLS
@pytest.mark.parametrize("action", ["kill worker", "kill"])
def test_workers_and_executors_are_killed_at_each_step(application: Application, job: OrderJob, action: str) -> None:
    struck = kill_in_turn(application, job, [(action, step, when) for step, when in MOMENTS])
    assert struck == [*range(1, len(MOMENTS) + 1)]


@ONE_OF_ALL_KILLS
@pytest.mark.parametrize(("step", "when"), MOMENTS)
def test_the_driver_is_killed_at_each_step(shared: SharedApplication, job: OrderJob, step: str, when: str) -> None:
    assert kill_the_driver(shared, job, step, when)


@ONE_OF_ALL_KILLS
def test_rows_that_stop_as_their_executor_died_are_not_committed(application: Application, job: OrderJob) -> None:
    # More than Spark and the kernel hold of what is on its way, a row at a time.
    job.settings = A_ROW_AT_A_TIME
    fault = job.add_fault("produce", "after", "kill feeder", first_batch=0)
    orders = [order._replace(headers=[*order.headers, LARGE_HEADER]) for order in ORDERS[:45]]
    job.add([orders])
    check(application, job, orders)
    assert fault.struck()
