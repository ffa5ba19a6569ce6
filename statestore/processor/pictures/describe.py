"""Finds the sub-topologies of a topology and describes them. Source: Kafka's InternalTopologyBuilder.describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from statestore.processor.nodes import NodeGraph, Operator, ProcessorNode, SinkNode, SourceNode
from statestore.processor.pictures.description import NodeDescription, SubtopologyDescription, TopologyDescription
from statestore.processor.pictures.java_order import JavaTreeSet, in_hash_order

_Node: TypeAlias = "SourceNode | ProcessorNode | SinkNode"


def describe(graph: NodeGraph) -> TopologyDescription:
    """Return the description of the topology whose nodes these are, with all in the order of Kafka's."""
    groups: dict[int, list[str]] = {}
    for name, number in graph.subtopologies().items():
        groups.setdefault(number, []).append(name)
    return TopologyDescription(tuple(_describe_group(graph, number, groups[number]) for number in sorted(groups)))


@dataclass(eq=False)
class _Connected:
    """A node between its neighbours, in the order of the sizes that they had when they were connected.

    Sizes grow as more is connected, but no neighbour moves: so the order need not be that of the final sizes.
    """

    name: str
    size: int = 1
    """How many paths lead down from it, as far as nodes are connected yet."""

    def __post_init__(self) -> None:
        self.above = JavaTreeSet(_Connected.is_before)
        self.below = JavaTreeSet(_Connected.is_before)

    def is_before(self, other: _Connected) -> bool:
        """Whether Kafka names it first: the larger one, or the first one by name."""
        return (-self.size, self.name) < (-other.size, other.name)

    def grow(self, by: int) -> None:
        """Count what has come below, here and in all above."""
        self.size += by
        for parent in self.above:
            parent.grow(by)


def _describe_group(graph: NodeGraph, number: int, names: list[str]) -> SubtopologyDescription:
    # Kafka collects the names in a set and the nodes in a map: two tables.
    connected = {name: _Connected(name) for name in in_hash_order(in_hash_order(names))}
    for node in connected.values():
        for parent in map(connected.__getitem__, graph.nodes[node.name].parents):
            node.above.add(parent)
            parent.below.add(node)
            parent.grow(node.size)
    described = [
        _describe_node(
            graph.nodes[node.name],
            tuple(parent.name for parent in node.above),
            tuple(child.name for child in node.below),
            graph.operators.get(node.name),
        )
        for node in sorted(connected.values(), key=lambda node: (-node.size, node.name))
    ]
    return SubtopologyDescription(number, tuple(described), is_global=any(map(graph.is_global, names)))


def _describe_node(
    node: _Node, parents: tuple[str, ...], children: tuple[str, ...], operator: Operator | None
) -> NodeDescription:
    if isinstance(node, SourceNode):
        topics = tuple(in_hash_order(node.topics or ()))
        if node.topics is None:
            return NodeDescription(
                "Source", node.name, "topics: every other", parents, children, topics=("every other",)
            )
        return NodeDescription("Source", node.name, f"topics: [{', '.join(topics)}]", parents, children, topics=topics)
    if isinstance(node, ProcessorNode):
        stores = tuple(in_hash_order(store for store in node.stores if store not in node.undescribed))
        detail = f"stores: [{', '.join(stores)}]"
        shown = None if operator is None else str(operator)
        return NodeDescription("Processor", node.name, detail, parents, children, stores, operator=shown)
    if isinstance(node.topic, str):
        return NodeDescription("Sink", node.name, f"topic: {node.topic}", parents, children, topics=(node.topic,))
    extractor = getattr(node.topic, "__qualname__", type(node.topic).__qualname__)
    detail = f"extractor class: {extractor}"
    return NodeDescription("Sink", node.name, detail, parents, children, topics=(f"chosen by {extractor}",))
