"""An operator is one value that says all that it adds to a topology."""

from typing import Any

import pytest

from statestore import Processor, Serdes, Topology
from statestore.errors import TopologyError
from statestore.format.keys.due_key import TIMER_KEYS
from statestore.format.keys.entry_key import LIST_KEYS
from statestore.operators.keyed_state import keyed_state_store
from statestore.operators.state_handle import timer_store
from statestore.processor.nodes import Operator, SinkNode, SourceNode
from statestore.stores.builder import PartStore

TEXT = Serdes.string()


class Idle(Processor):
    """Does nothing."""

    def process(self, record: Any) -> None:
        """Do nothing."""


def counting(name: str = "count", *, parents: tuple[str, ...] = ()) -> Operator:
    """An operator with everything that one can have."""
    return Operator(
        "count by <key>",
        name,
        Idle,
        (
            PartStore(keyed_state_store(f"{name}-seen", TEXT, ttl=50, ttl_clock="event"), LIST_KEYS),
            PartStore(keyed_state_store(f"{name}-old", TEXT)),
            PartStore(timer_store(f"{name}-timers"), TIMER_KEYS),
        ),
        None if parents else SourceNode(f"{name}-source", ("orders",), TEXT, TEXT),
        parents,
        SinkNode(f"{name}-sink", "counts", (name,), TEXT, None),
        timer_clock="processing",
    )


def by_hand() -> Topology:
    """The same as `counting`, node by node."""
    topology = Topology().add_source("count-source", "orders", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("count", Idle, ["count-source"])
    for store in counting().stores:
        topology.add_state_store(store.builder, "count")
    return topology.add_sink("count-sink", "counts", ["count"], key_serde=TEXT)


def test_an_operator_adds_what_its_parts_would_and_records_what_its_keys_are_made_of() -> None:
    made, expected = Topology().add_operator(counting()), by_hand()
    made.validate()
    assert list(made.nodes) == list(expected.nodes)
    assert made.store_specs() == expected.store_specs()
    assert str(made.describe()) == str(expected.describe()), "Kafka's text has no place for operators"
    recorded = {node["name"]: node for node in made.to_json()}
    assert recorded["count"].pop("entry_keys") == {"count-seen": LIST_KEYS, "count-timers": TIMER_KEYS}
    assert list(recorded.values()) == list(expected.to_json())


def test_an_operator_stands_below_others() -> None:
    topology = Topology().add_operator(counting()).add_operator(counting("again", parents=("count",)))
    assert topology.children("count") == ["count-sink", "again"]
    assert list(topology.operators) == ["count", "again"]
    with pytest.raises(TopologyError, match="already is a node 'again'"):
        topology.add_operator(counting("again", parents=("count",)))


def test_a_description_shows_the_operator_and_the_clocks_that_it_needs() -> None:
    description = Topology().add_operator(counting()).describe()
    shown = {node.name: node.operator for part in description.subtopologies for node in part.nodes}
    needed = "count by <key>, timers by processing time, entries expire by event time"
    assert shown == {"count-source": None, "count": needed, "count-sink": None}
    drawn = '["count<br/>count by &lt;key&gt;, timers by processing time, entries expire by event time"]'
    assert drawn in description.to_mermaid()
    assert str(Operator("plain", "p", Idle)) == "plain"


def test_words_for_keys_that_nobody_knows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"store 'seen': entry_keys must be one of \['buffered.*, not 'lists'"):
        PartStore(keyed_state_store("seen", TEXT), "lists")
