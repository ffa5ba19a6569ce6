"""The nodes of a topology and how they are connected: what is there to look at once a topology is declared."""

from __future__ import annotations

from statestore.processor.nodes import InterceptorNode, ProcessorNode, SinkNode, SourceNode
from statestore.processor.operator import Operator


class NodeGraph:
    """Sources, processors and sinks by name."""

    def __init__(self) -> None:
        self.nodes: dict[str, SourceNode | ProcessorNode | SinkNode] = {}
        """All nodes, in the order they were added: parents before children."""
        self.sources: dict[str, SourceNode] = {}
        self.processors: dict[str, ProcessorNode] = {}
        self.sinks: dict[str, SinkNode] = {}
        self.interceptors: dict[str, InterceptorNode] = {}
        """Those that stand around the others, in the order of their chain."""
        self.operators: dict[str, Operator] = {}
        """Those that were added as one, by the name of their processor."""

    def children(self, parent: str) -> list[str]:
        """Return the names of the nodes below `parent`, in the order they were added."""
        below = (node for node in self.nodes.values() if not isinstance(node, SourceNode))
        return [node.name for node in below if parent in node.parents]

    def is_global(self, name: str) -> bool:
        """Return whether a node feeds a global store."""
        source = self.sources.get(self.processors[name].parents[0] if name in self.processors else name)
        return source is not None and source.is_global
