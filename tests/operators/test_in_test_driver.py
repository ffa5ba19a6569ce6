"""The same topologies in a TopologyTestDriver: each record is a batch there."""

import json

from customer_totals import customer_totals_topology
from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Stores, Topology
from statestore.testing.topology_test_driver import TopologyTestDriver

START_MS = 1_000


def test_a_processor_that_is_handed_a_keys_rows() -> None:
    with TopologyTestDriver(customer_totals_topology()) as driver:
        orders = driver.create_input_topic("orders", key_serde=Serdes.string(), value_serde=Serdes.json())
        totals = driver.create_output_topic("customer-totals", key_serde=Serdes.string(), value_serde=Serdes.json())
        for number, amount in enumerate([3, 4, 5, 1]):
            orders.pipe_input("ada", {"amount": amount}, timestamp_ms=number, headers=Headers([("n", b"%d" % number)]))
        last = totals.read_records_to_list()[-1]
        assert last.value == {"total": 13, "largest": [3, 4, 5], "items": {"item 0": 1, "item 1": 2, "item 2": 1}}
        assert (last.key, last.timestamp_ms, last.headers) == ("ada", 3, Headers([("n", b"3")]))
        held = driver.get_timestamped_key_value_store_with_headers("total")
        assert held is not None
        assert [(key, entry.value) for key, entry in held.all()] == [(b"ada", 13)]


class Remember(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store("s")

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(json.dumps(self.store.get(record.key))))
        self.store.put(record.key, record.value)


def test_a_time_to_live_by_the_drivers_clock() -> None:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_processor("p", Remember, ["in"])
    builder = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), Serdes.string(), Serdes.string())
    topology.add_state_store(builder.with_ttl(100), "p")
    topology.add_sink("out", "out", ["p"])
    with TopologyTestDriver(topology, initial_wall_clock_time_ms=START_MS) as driver:
        records = driver.create_input_topic("in", key_serde=Serdes.string(), value_serde=Serdes.string())
        seen = driver.create_output_topic("out", key_serde=Serdes.string(), value_serde=Serdes.json())
        store = driver.get_key_value_store("s")
        assert store is not None
        records.pipe_input("k", "first")
        driver.advance_wall_clock_time(99)
        assert store.get("k") == "first"
        driver.advance_wall_clock_time(1)
        assert store.get("k") is None
        records.pipe_input("k", "second")
        driver.advance_wall_clock_time(50)
        records.pipe_input("k", "third")
        assert seen.read_values_to_list() == [None, None, "second"]
        driver.advance_wall_clock_time(100)
        records.pipe_input("other", "x")
        times = driver.get_key_value_store("s-expiry")
        assert times is not None
        assert sorted(key[:1] + key[-5:] for key, _ in times.all()) == [b"kother", b"tother"]
