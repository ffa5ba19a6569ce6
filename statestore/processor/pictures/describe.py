"""Finds the sub-topologies of a topology and describes them. Source: Kafka's InternalTopologyBuilder.describe."""

from __future__ import annotations

from typing import TypeAlias

from statestore.processor.nodes import NodeGraph, Operator, ProcessorNode, SinkNode, SourceNode
from statestore.processor.pictures.description import NodeDescription, SubtopologyDescription, TopologyDescription

_Node: TypeAlias = "SourceNode | ProcessorNode | SinkNode"


def describe(graph: NodeGraph) -> TopologyDescription:
    """Return the description of the topology whose nodes these are."""
    nodes = graph.nodes
    ids = _subtopology_ids(graph)
    sizes = _sizes(graph)

    def larger_first(name: str) -> tuple[int, str]:
        return -sizes[name], name

    groups: dict[int, list[str]] = {}
    for name in sorted(nodes, key=larger_first):
        groups.setdefault(ids[name], []).append(name)
    return TopologyDescription(
        tuple(
            SubtopologyDescription(
                number,
                tuple(
                    _describe_node(
                        nodes[name],
                        tuple(sorted(_parents(nodes[name]), key=larger_first)),
                        tuple(sorted(graph.children(name), key=larger_first)),
                        graph.operators.get(name),
                    )
                    for name in groups[number]
                ),
                is_global=any(graph.is_global(name) for name in groups[number]),
            )
            for number in sorted(groups)
        )
    )


def _parents(node: _Node) -> tuple[str, ...]:
    return () if isinstance(node, SourceNode) else node.parents


def _describe_node(
    node: _Node, parents: tuple[str, ...], children: tuple[str, ...], operator: Operator | None
) -> NodeDescription:
    if isinstance(node, SourceNode):
        topics = tuple(sorted(node.topics or ()))
        if node.topics is None:
            return NodeDescription(
                "Source", node.name, "topics: every other", parents, children, topics=("every other",)
            )
        return NodeDescription("Source", node.name, f"topics: [{', '.join(topics)}]", parents, children, topics=topics)
    if isinstance(node, ProcessorNode):
        stores = tuple(sorted({*node.stores} - node.undescribed))
        detail = f"stores: [{', '.join(stores)}]"
        shown = None if operator is None else str(operator)
        return NodeDescription("Processor", node.name, detail, parents, children, stores, operator=shown)
    if isinstance(node.topic, str):
        return NodeDescription("Sink", node.name, f"topic: {node.topic}", parents, children, topics=(node.topic,))
    extractor = getattr(node.topic, "__qualname__", type(node.topic).__qualname__)
    detail = f"extractor class: {extractor}"
    return NodeDescription("Sink", node.name, detail, parents, children, topics=(f"chosen by {extractor}",))


def _subtopology_ids(graph: NodeGraph) -> dict[str, int]:
    """Return the number of each node's sub-topology: nodes are in one if edges or stores connect them.

    A global store connects nobody: everyone may read it.
    """
    root = {name: name for name in graph.nodes}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for name, node in graph.nodes.items():
        for parent in _parents(node):
            root[find(name)] = find(parent)
    users: dict[str, str] = {}
    for name, processor in graph.processors.items():
        for store in processor.stores:
            root[find(name)] = find(users.setdefault(store, name))
    numbers: dict[str, int] = {}
    return {name: numbers.setdefault(find(name), len(numbers)) for name in graph.nodes}


def _sizes(graph: NodeGraph) -> dict[str, int]:
    """Return how many paths lead down from each node: the measure by which Kafka orders nodes."""
    sizes: dict[str, int] = {}
    for name in reversed(graph.nodes):
        sizes[name] = 1 + sum(sizes[child] for child in graph.children(name))
    return sizes
