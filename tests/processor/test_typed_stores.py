"""A store that is asked for by its class: type checkers know it, and another class is refused."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    Serdes,
    Stores,
    TimestampedKeyValueStoreWithHeaders,
    Topology,
    ValueTimestampHeaders,
    WindowStore,
)
from statestore.errors import StateStoreError
from statestore.stores.key_value import ReadOnlyKeyValueStore
from statestore.testing import TopologyTestDriver


class Counting(Processor):
    """Its lines with `type: ignore` are right: mypy would say so if they were not needed."""

    def init(self, context: ProcessorContext) -> None:
        self.totals = context.state_store("totals", TimestampedKeyValueStoreWithHeaders[str, int])

    def process(self, record: Any) -> None:
        seen: ValueTimestampHeaders[int] | None = self.totals.get(record.key)
        self.totals.put(record.key, ValueTimestampHeaders.make((seen.value if seen else 0) + 1, record.timestamp_ms))
        if record.value == b"wrong":
            self.totals.get(5)  # type: ignore[arg-type]


def topology_of(processor: type[Processor]) -> Topology:
    topology = Topology()
    topology.add_source("in", "in", key_serde=Serdes.string(), value_serde=Serdes.bytes())
    topology.add_processor("count", processor, ["in"])
    store = Stores.persistent_timestamped_key_value_store_with_headers("totals")
    builder = Stores.timestamped_key_value_store_with_headers_builder(store, Serdes.string(), Serdes.int64())
    topology.add_state_store(builder, "count")
    return topology


def test_a_store_is_what_it_was_asked_for_as() -> None:
    with TopologyTestDriver(topology_of(Counting)) as driver:
        into = driver.create_input_topic("in", key_serde=Serdes.string(), value_serde=Serdes.bytes())
        into.pipe_input("ada", b"", timestamp_ms=1)
        into.pipe_input("ada", b"", timestamp_ms=2)
        assert driver.get_state_store("totals").get("ada").value == 2


@pytest.mark.parametrize("kind", [KeyValueStore, ReadOnlyKeyValueStore[str, Any]])
def test_what_it_is_a_kind_of_will_do(kind: Any) -> None:
    class Asking(Processor):
        def init(self, context: Any) -> None:
            assert context.state_store("totals", kind) is context.state_store("totals")

    TopologyTestDriver(topology_of(Asking)).close()


def test_another_kind_is_refused() -> None:
    class Asking(Processor):
        def init(self, context: Any) -> None:
            context.state_store("totals", WindowStore[str, int])

    with pytest.raises(StateStoreError, match="as WindowStore, but it is a TimestampedKeyValueStoreWithHeaders"):
        TopologyTestDriver(topology_of(Asking))
