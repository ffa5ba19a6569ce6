"""The stages of a topology: its sub-topologies, divided by the repartition topics between them.

A sub-topology is in the stage after all those that write what it reads; those of one stage run side by side. Source:
Kafka runs each sub-topology by itself, and its repartition topics carry records from the one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from statestore.errors import TopologyError
from statestore.processor.topology import Topology


class TopologyStage(NamedTuple):
    """A part of a topology, and the topics that its records come from and go to."""

    topology: Topology
    reads: frozenset[str] | None
    """The topics that it reads; None if also every one that no other stage reads."""
    later: frozenset[str]
    """The topics that later stages read."""
    copied: Mapping[str, str]
    """Its stores of which later stages have copies, and the topics by which those hear what it writes to them."""


def stages_of(topology: Topology) -> tuple[TopologyStage, ...]:
    """Return the stages in their order: one, if there are no repartition topics. Each has all global stores.

    Raises TopologyError for a repartition topic that leads back to the sub-topology that writes it, for a source of
    every other topic in a stage that is not the first, and for a store that can't be copied.
    """
    depths = _depths(topology)
    parts = [
        topology.part(name for name in topology.nodes if depths[name] == depth).with_copies()
        for depth in range(max(depths.values(), default=0) + 1)
    ]
    copied = {store: topic for part in parts for store, topic in part.copied_stores.items()}
    for part in parts:
        part.repartition_topics = topology.repartition_topics | {*copied.values()}
    reads = [frozenset(topic for source in part.sources.values() for topic in source.topics or ()) for part in parts]
    catches_all = [any(source.topics is None for source in part.sources.values()) for part in parts]
    if any(catches_all[1:]):
        raise TopologyError("a source behind a repartition topic must name its topics: add_source(name, topics, ...)")
    return tuple(
        TopologyStage(
            part,
            None if catches_all[number] else reads[number],
            frozenset().union(*reads[number + 1 :]),
            {store: copied[store] for store in part.store_builders if store in copied.keys() - part.copied_stores},
        )
        for number, part in enumerate(parts)
    )


def _depths(topology: Topology) -> dict[str, int]:
    """Return how many repartition topics a record has to go through, at most, to come to each node."""
    groups = topology.subtopologies(through_copies=False)
    writers: dict[str, set[int]] = {topic: set() for topic in topology.repartition_topics}
    for sink in topology.sinks.values():
        if sink.topic in writers:
            writers[str(sink.topic)].add(groups[sink.name])
    above: dict[int, set[int]] = {group: set() for group in groups.values()}
    for source in topology.sources.values():
        above[groups[source.name]].update(*(writers[topic] for topic in source.topics or () if topic in writers))
    depth_of: dict[int, int] = {}
    while len(depth_of) < len(above):
        ready = [group for group in above if group not in depth_of and above[group] <= depth_of.keys()]
        if not ready:
            raise TopologyError(_leads_back(topology, groups, above.keys() - depth_of.keys()))
        depth_of.update({group: max((depth_of[each] + 1 for each in above[group]), default=0) for group in ready})
    return {name: depth_of[group] for name, group in groups.items()}


def _leads_back(topology: Topology, groups: dict[str, int], stuck: set[int]) -> str:
    names = [name for name, group in groups.items() if group in stuck]
    processors = [topology.processors[name] for name in names if name in topology.processors]
    stores = sorted({store for processor in processors for store in processor.stores})
    written = {str(topology.sinks[name].topic) for name in names if name in topology.sinks}
    topics = sorted(topology.repartition_topics & written)
    return (
        f"records of {'topic' if len(topics) == 1 else 'topics'} {', '.join(map(repr, topics))} would come back to "
        f"the stage that sends them, because steps before and after the topic share a store ({', '.join(stores)}). "
        "Stages run one after the other: call repartition() before the step that fills the store, too. The other side "
        "of a table that is joined with itself can be to_stream().repartition().to_table()"
    )
