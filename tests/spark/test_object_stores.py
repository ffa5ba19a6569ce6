"""The running total with its state in an object store, while the connection to it fails again and again."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException

from orders import expected_totals, seeded_orders
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.recovery.object_store import Fault, ObjectStore, at_rate, no_faults, times
from tests.support.spark.queries import OrderQuery

pytestmark = pytest.mark.slow

ORDERS = seeded_orders(90)
BATCHES = [ORDERS[start : start + 30] for start in range(0, 90, 30)]


@pytest.fixture
def store_query(store: ObjectStore, order_query: OrderQuery) -> OrderQuery:
    order_query.state_location = store.uri("states/totals")
    return order_query


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_state_in_an_object_store_is_exact_whatever_the_connection_does(
    store: ObjectStore, store_query: OrderQuery
) -> None:
    store.faults = at_rate(0.2, seed=11)
    store_query.add(*BATCHES[:2])
    store_query.run()

    shutil.rmtree(store_query.home / "local")
    store_query.add(*BATCHES[2:])
    store_query.run()
    assert store_query.totals() == expected_totals(ORDERS)
    assert len(store_query.outputs) == len(ORDERS)
    assert store.struck.total() > 10, "the faults must have struck"
    assert not (store_query.home / "state").exists()


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_query_that_the_store_refuses_goes_on_where_it_stopped(store: ObjectStore, store_query: OrderQuery) -> None:
    store_query.add(BATCHES[0])
    store_query.run()
    location = DurableLocation(store_query.state_location)
    deltas = sum(len(location.names(f"{shard}/deltas")) for shard in location.directories("shards"))
    written = [request for request in store.requests if request.method == "PUT" and "/deltas/" in request.target]
    assert len(written) == deltas > 0, "a batch of a shard is one request"

    store_query.add(BATCHES[1])
    store.faults = times(1000, Fault.ACCESS_DENIED, method="PUT", containing="deltas")
    with pytest.raises(StreamingQueryException, match=r"LocationError.*credentials in use are not allowed"):
        store_query.run()
    store.faults = no_faults
    store_query.run()
    assert store_query.totals() == expected_totals(ORDERS[:60])
