"""What `describe` says of a topology, in Kafka's words and as a drawing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from statestore import Processor, Serdes, StoreBuilder, Stores, Topology
from statestore.processor.pictures.description import NodeDescription
from statestore.processor.pictures.drawing import draw

BYTES = Serdes.bytes()
SVG = "{http://www.w3.org/2000/svg}"


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
    Source: orders (topics: [late, early])
      --> audit, total
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


def test_a_notebook_draws_what_there_is_from_topics_down() -> None:
    image = ElementTree.fromstring(topology()._repr_html_())
    assert image.tag == f"{SVG}svg"
    assert topology()._repr_html_() == topology().describe()._repr_html_()
    rows = {str(text.text): float(text.attrib["y"]) for text in image.iter(f"{SVG}text")}
    assert rows.keys() >= {"early", "late", "orders", "total", "audit", "totals", "rates", "every other"}
    assert rows["early"] == rows["late"] < rows["orders"] < rows["total"] < rows["audit"]
    assert rows["total"] < rows["totals"], "a store is drawn once, below all that use it"
    boxes = [{name: float(box.attrib[name]) for name in ("x", "y", "width")} for box in image.iter(f"{SVG}rect")]
    width = float(image.attrib["width"])
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    beside = sorted((box["y"], box["x"], box["width"]) for box in boxes)
    assert all(a[0] < b[0] or a[1] + a[2] < b[1] for a, b in pairwise(beside)), "no box is on another"
    edges = sum(len(node.parents) + len(node.topics) + len(node.stores) for node in nodes_of(topology()))
    assert len([*image.iter(f"{SVG}line")]) == edges


def nodes_of(made: Topology) -> list[NodeDescription]:
    return [node for subtopology in made.describe().subtopologies for node in subtopology.nodes]


def test_what_is_in_a_node_is_no_markup() -> None:
    node = NodeDescription("Source", "a", "", (), (), operator="<b>&")
    image = ElementTree.fromstring(draw([node]))
    assert [text.text for text in image.iter(f"{SVG}text")] == ["a", "<b>&"]
    assert ElementTree.fromstring(Topology()._repr_html_()).tag == f"{SVG}svg"
