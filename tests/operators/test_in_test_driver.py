"""The same topologies in a TopologyTestDriver: each record is a batch there."""

import json

from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology
from statestore.testing.topology_test_driver import TopologyTestDriver

START_MS = 1_000


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
