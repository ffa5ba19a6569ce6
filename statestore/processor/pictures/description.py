"""What a topology looks like: sub-topologies and their nodes, as text and as a drawing.

Source: Kafka Streams' TopologyDescription, whose text this is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from statestore.processor.pictures.drawing import draw


@dataclass(frozen=True)
class NodeDescription:
    """A node: `detail` is what it reads, keeps or writes; parents and children are names, in Kafka's order."""

    kind: Literal["Source", "Processor", "Sink"]
    name: str
    detail: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    stores: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    """What is drawn as topics: their names, or who chooses them."""
    operator: str | None = None
    """What ready-made part the processor is, and the clocks it needs. Drawn; Kafka's text has no place for it."""

    @property
    def label(self) -> tuple[str, ...]:
        """The lines that are drawn in the node."""
        return (self.name,) if self.operator is None else (self.name, self.operator)

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.name} ({self.detail})"]
        if self.kind != "Sink":
            lines.append(f"      --> {', '.join(self.children) or 'none'}")
        if self.kind != "Source":
            lines.append(f"      <-- {', '.join(self.parents) or 'none'}")
        return "\n".join(lines)


@dataclass(frozen=True)
class SubtopologyDescription:
    """Nodes that are connected with each other, by edges or by stores; those of a global store are for themselves."""

    id: int
    nodes: tuple[NodeDescription, ...]
    is_global: bool = False

    def __str__(self) -> str:
        note = " for global store (will not generate tasks)" if self.is_global else ""
        end = "" if self.is_global else "\n"
        return f"Sub-topology: {self.id}{note}\n" + "".join(f"    {node}\n" for node in self.nodes) + end


@dataclass(frozen=True)
class TopologyDescription:
    """The sub-topologies of a topology. `str` gives Kafka's text."""

    subtopologies: tuple[SubtopologyDescription, ...]

    def __str__(self) -> str:
        # The same blanks as in Kafka's text, so that the two can be compared.
        return "Topologies:\n " + "".join(f"  {subtopology}" for subtopology in self.subtopologies)

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart: topics and sinks' topics as stadiums, state stores as cylinders."""
        lines = ["flowchart TD"]
        drawn = _Drawn()
        for subtopology in self.subtopologies:
            title = f"Global store {subtopology.id}" if subtopology.is_global else f"Sub-topology {subtopology.id}"
            lines.append(f'    subgraph sub{subtopology.id}["{title}"]')
            lines += [f"        {drawn.node(node.name)}[{_label(*node.label)}]" for node in subtopology.nodes]
            stores = dict.fromkeys(store for node in subtopology.nodes for store in node.stores)
            lines += [f"        {drawn.store(store)}[({_label(store)})]" for store in stores]
            lines.append("    end")
        topics = dict.fromkeys(topic for node in self._nodes() for topic in node.topics)
        lines += [f"    {drawn.topic(topic)}([{_label(topic)}])" for topic in topics]
        for node in self._nodes():
            name = drawn.node(node.name)
            if node.kind == "Source":
                lines += [f"    {drawn.topic(topic)} --> {name}" for topic in node.topics]
            if node.kind == "Sink":
                lines += [f"    {name} --> {drawn.topic(topic)}" for topic in node.topics]
            lines += [f"    {name} --> {drawn.node(child)}" for child in node.children]
            lines += [f"    {name} -.- {drawn.store(store)}" for store in node.stores]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """Return a drawing, for notebooks."""
        return draw([*self._nodes()])

    def _nodes(self) -> Iterable[NodeDescription]:
        return (node for subtopology in self.subtopologies for node in subtopology.nodes)


class _Drawn:
    """Gives each node, store and topic an id of its own: Mermaid's can't hold every character that names can."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], str] = {}

    def node(self, name: str) -> str:
        return self._id("n", name)

    def store(self, name: str) -> str:
        return self._id("s", name)

    def topic(self, name: str) -> str:
        return self._id("t", name)

    def _id(self, kind: str, name: str) -> str:
        return self._ids.setdefault((kind, name), f"{kind}{len(self._ids)}")


def _label(*lines: str) -> str:
    escaped = (
        line.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") for line in lines
    )
    return f'"{"<br/>".join(escaped)}"'
