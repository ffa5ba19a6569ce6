"""Topologies that can't be: the error comes where the mistake is made, in words."""

import pytest

from statestore import Processor, Serdes, Stores, Topology
from statestore.errors import TopologyError

STRING = Serdes.string()


def store(name: str = "s"):
    supplier = Stores.persistent_timestamped_key_value_store_with_headers(name)
    return Stores.timestamped_key_value_store_with_headers_builder(supplier, STRING, STRING)


@pytest.fixture
def topology() -> Topology:
    made = Topology()
    made.add_source("in", key_serde=STRING, value_serde=STRING)
    made.add_processor("p", Processor, ["in"])
    made.add_sink("out", "out", ["p"])
    return made


def test_a_whole_topology_is_valid_and_says_what_it_is(topology: Topology) -> None:
    topology.add_state_store(store(), "p")
    topology.validate()
    assert [node["name"] for node in topology.to_json()] == ["in", "p", "out"]
    assert topology.to_json()[1] == {"type": "processor", "name": "p", "parents": ["in"], "stores": ["s"]}
    assert [spec.name for spec in topology.store_specs()] == ["s"]
    assert topology.children("p") == ["out"]


@pytest.mark.parametrize("name", ["in", "p", "out"])
def test_a_second_node_of_one_name(topology: Topology, name: str) -> None:
    with pytest.raises(TopologyError, match=f"already is a node '{name}'"):
        topology.add_processor(name, Processor, ["in"])


def test_unknown_missing_and_impossible_parents(topology: Topology) -> None:
    with pytest.raises(TopologyError, match="unknown parent 'later'"):
        topology.add_processor("q", Processor, ["later"])
    with pytest.raises(TopologyError, match="no parents"):
        topology.add_sink("q", "q", [])
    with pytest.raises(TopologyError, match="below the sink 'out'"):
        topology.add_processor("q", Processor, ["out"])
    with pytest.raises(TypeError, match="list of names"):
        topology.add_processor("q", Processor, "in")


def test_sources_that_read_the_same_topic(topology: Topology) -> None:
    with pytest.raises(TopologyError, match="both read every topic"):
        topology.add_source("all", key_serde=STRING, value_serde=STRING)
    topology.add_source("a", ["x", "y"], key_serde=STRING, value_serde=STRING)
    with pytest.raises(TopologyError, match="both read topic 'y'"):
        topology.add_source("b", ["y"], key_serde=STRING, value_serde=STRING)
    with pytest.raises(ValueError, match="topics must not be empty"):
        topology.add_source("c", [], key_serde=STRING, value_serde=STRING)


def test_state_stores_must_be_known_single_and_attached(topology: Topology) -> None:
    topology.add_state_store(store())
    with pytest.raises(TopologyError, match="'s' is not attached"):
        topology.validate()
    with pytest.raises(TopologyError, match="already is a state store 's'"):
        topology.add_state_store(store())
    with pytest.raises(TopologyError, match="no such processor"):
        topology.add_state_store(store("t"), "in")
    with pytest.raises(TopologyError, match=r"'u'.*was not added"):
        topology.connect_processor_and_state_stores("p", "u")
    with pytest.raises(TypeError, match="StoreBuilder"):
        topology.add_state_store("s", "p")


def test_a_source_without_children_or_no_source_at_all(topology: Topology) -> None:
    topology.add_source("lost", ["lost"], key_serde=STRING, value_serde=STRING)
    with pytest.raises(TopologyError, match="'lost' has no children"):
        topology.validate()
    with pytest.raises(TopologyError, match="no source"):
        Topology().validate()


def test_illegal_arguments_are_named(topology: Topology) -> None:
    with pytest.raises(TypeError, match="value_serde"):
        topology.add_source("x", key_serde=STRING, value_serde=str)
    with pytest.raises(TypeError, match="supplier"):
        topology.add_processor("x", "Processor", ["in"])
    with pytest.raises(ValueError, match="topic"):
        topology.add_sink("x", "", ["in"])
    with pytest.raises(ValueError, match="illegal name"):
        topology.add_sink("a b", "x", ["in"])


def add_global_store(topology: Topology, name: str = "g", source: str = "gs", topic: str = "gt", processor: str = "gp"):
    topology.add_global_store(store(name), source, topic, processor, Processor, key_serde=STRING, value_serde=STRING)


def test_a_global_store_has_its_source_and_processor_to_itself(topology: Topology) -> None:
    add_global_store(topology)
    assert topology.global_stores == {"g": "gt"}
    assert topology.store_builders["g"].logging_enabled
    topology.validate()
    for parent in ("gs", "gp"):
        with pytest.raises(TopologyError, match=f"can't be below '{parent}', which feeds a global store"):
            topology.add_sink("more", "more", [parent])
    with pytest.raises(TopologyError, match="needs no attaching: every processor can read it"):
        topology.connect_processor_and_state_stores("p", "g")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "g", "source": "hs", "processor": "hp"}, "already is a state store 'g'"),
        ({"name": "h", "source": "in"}, "already is a node 'in'"),
        ({"name": "h", "source": "hs", "processor": "p"}, "already is a node 'p'"),
        ({"name": "h", "source": "same", "processor": "same"}, "already is a node 'same'"),
        ({"name": "h", "source": "hs", "processor": "hp"}, "both read topic 'gt'"),
    ],
)
def test_global_stores_that_can_not_be_leave_the_topology_as_it_was(
    topology: Topology, wrong: dict[str, str], message: str
) -> None:
    add_global_store(topology)
    before = (list(topology.nodes), list(topology.store_builders), dict(topology.global_stores))
    with pytest.raises(TopologyError, match=message):
        add_global_store(topology, **wrong)
    assert (list(topology.nodes), list(topology.store_builders), dict(topology.global_stores)) == before


def test_a_node_below_itself_is_a_cycle(topology: Topology) -> None:
    with pytest.raises(TopologyError, match="can't be below itself: a topology has no cycles"):
        topology.add_processor("loop", Processor, ["in", "loop"])


def test_a_sinks_topic_is_a_name_or_a_function(topology: Topology) -> None:
    topology.add_sink("chosen", lambda record, metadata: "x", ["p"])
    assert topology.to_json()[2] == {"type": "sink", "name": "chosen", "topic": None, "parents": ["p"]}
    for wrong in ("", None, 7):
        with pytest.raises(ValueError, match="topic must be a name, or a function"):
            topology.add_sink("wrong", wrong, ["p"])
