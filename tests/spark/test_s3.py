"""The running total with its state on S3, while the connection to it fails again and again."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException

from orders import expected_totals, seeded_orders
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.recovery.s3_server import S3, Fault, at_rate, no_faults, times
from tests.support.spark.queries import OrderQuery

pytestmark = pytest.mark.slow

ORDERS = seeded_orders(90)
BATCHES = [ORDERS[start : start + 30] for start in range(0, 90, 30)]


@pytest.fixture
def s3_query(s3: S3, order_query: OrderQuery) -> OrderQuery:
    order_query.state_location = s3.uri("states/totals")
    return order_query


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_state_on_s3_is_exact_whatever_the_connection_does(s3: S3, s3_query: OrderQuery) -> None:
    s3.faults = at_rate(0.2, seed=11)
    s3_query.add(*BATCHES[:2])
    s3_query.run()

    shutil.rmtree(s3_query.home / "local")
    s3_query.add(*BATCHES[2:])
    s3_query.run()
    assert s3_query.totals() == expected_totals(ORDERS)
    assert len(s3_query.outputs) == len(ORDERS)
    assert s3.struck.total() > 10, "the faults must have struck"
    assert not (s3_query.home / "state").exists()


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_query_that_s3_refuses_goes_on_where_it_stopped(s3: S3, s3_query: OrderQuery) -> None:
    s3_query.add(BATCHES[0])
    s3_query.run()
    location = DurableLocation(s3_query.state_location)
    deltas = sum(len(location.names(f"{shard}/deltas")) for shard in location.directories("shards"))
    written = [request for request in s3.requests if request.method == "PUT" and "/deltas/" in request.target]
    assert len(written) == deltas > 0, "a batch of a shard is one request"

    s3_query.add(BATCHES[1])
    s3.faults = times(1000, Fault.ACCESS_DENIED, method="PUT", containing="deltas")
    with pytest.raises(StreamingQueryException, match=r"LocationError.*credentials in use are not allowed"):
        s3_query.run()
    s3.faults = no_faults
    s3_query.run()
    assert s3_query.totals() == expected_totals(ORDERS[:60])
