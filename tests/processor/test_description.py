"""What `describe` says of a topology, in Kafka's words and as a drawing."""

from __future__ import annotations

from typing import Any

from statestore import Processor, Serdes, StoreBuilder, Stores, Topology

BYTES = Serdes.bytes()


def store(name: str) -> StoreBuilder[Any]:
    return Stores.key_value_store_builder(Stores.persistent_key_value_store(name), BYTES, BYTES)


def topology() -> Topology:
    made = Topology()
    made.add_source("orders", ["late", "early"], key_serde=BYTES, value_serde=BYTES)
    made.add_processor("total", Processor, ["orders"])
    made.add_processor("audit", Processor, ["orders", "total"])
    made.add_state_store(store("totals"), "total")
    made.add_sink("out", "out", ["total"])
    made.add_global_store(store("rates"), "rates-in", "rates", "keep", Processor, key_serde=BYTES, value_serde=BYTES)
    made.add_source("rest", key_serde=BYTES, value_serde=BYTES)
    made.add_sink("chosen", lambda record, metadata: str(record.key), ["rest"])
    made.add_source("more", "more", key_serde=BYTES, value_serde=BYTES)
    made.add_processor("shares", Processor, ["more"])
    made.connect_processor_and_state_stores("shares", "totals")
    return made


EXPECTED = """\
Topologies:
   Sub-topology: 0
    Source: orders (topics: [early, late])
      --> total, audit
    Processor: total (stores: [totals])
      --> audit, out
      <-- orders
    Source: more (topics: [more])
      --> shares
    Processor: audit (stores: [])
      --> none
      <-- orders, total
    Sink: out (topic: out)
      <-- total
    Processor: shares (stores: [totals])
      --> none
      <-- more

  Sub-topology: 1 for global store (will not generate tasks)
    Source: rates-in (topics: [rates])
      --> keep
    Processor: keep (stores: [rates])
      --> none
      <-- rates-in
  Sub-topology: 2
    Source: rest (topics: every other)
      --> chosen
    Sink: chosen (extractor class: topology.<locals>.<lambda>)
      <-- rest

"""


def test_the_text_lists_sub_topologies_with_the_larger_nodes_first() -> None:
    description = topology().describe()
    assert [subtopology.is_global for subtopology in description.subtopologies] == [False, True, False]
    assert str(description) == EXPECTED


def test_nodes_that_share_a_store_are_in_one_sub_topology_and_a_global_store_connects_nobody() -> None:
    numbers = {node.name: each.id for each in topology().describe().subtopologies for node in each.nodes}
    assert numbers == {
        **dict.fromkeys(["orders", "total", "audit", "out", "more", "shares"], 0),
        **dict.fromkeys(["rates-in", "keep"], 1),
        **dict.fromkeys(["rest", "chosen"], 2),
    }


def test_the_drawing_has_every_node_edge_store_and_topic_under_an_id_of_its_own() -> None:
    drawn = topology().describe().to_mermaid().splitlines()
    assert drawn[0] == "flowchart TD"
    labels = {line.split("[", 1)[0].split("(", 1)[0].strip(): line for line in drawn if '"' in line}
    shown = [line.split('"')[1] for line in labels.values()]
    topics = [
        "early",
        "late",
        "more",
        "rates",
        "out",
        "every other",
        "chosen by topology.&lt;locals&gt;.&lt;lambda&gt;",
    ]
    titles = ["Sub-topology 0", "Global store 1", "Sub-topology 2"]
    assert sorted(shown) == sorted([*topology().nodes, "totals", "rates", *topics, *titles])
    edges = [line for line in drawn if "-->" in line or "-.-" in line]
    between_nodes = sum(len(topology().children(name)) for name in topology().nodes)
    assert len(edges) == between_nodes + len(topics) + len(["total", "shares", "keep"])
    assert all(part in labels for line in edges for part in (line.split()[0], line.split()[-1]))


def test_names_can_hold_what_a_drawing_can_not() -> None:
    made = Topology()
    made.add_source("a", 'say "hi" <b>&', key_serde=BYTES, value_serde=BYTES)
    made.add_sink("end", "end", ["a"])
    drawn = made.describe().to_mermaid()
    assert '(["say &quot;hi&quot; &lt;b&gt;&amp;"])' in drawn
    assert drawn.count("subgraph") == drawn.count("    end\n") == 1
