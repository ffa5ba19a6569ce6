"""Topologies that can't be built, in Python; tests/java/RunTopologies.java has their twins."""

from __future__ import annotations

from collections.abc import Callable

from statestore import Topology
from tests.support.twins.kit import STRING, Kit, passing, sink, source, with_global_store

Build = Callable[[Kit], Topology]


def one_processor(kit: Kit) -> Topology:
    return kit.topology("in").add_processor("p", passing(), ["source"])


def two_stores_of_one_name(kit: Kit) -> Topology:
    return one_processor(kit).add_state_store(kit.plain("store"), "p").add_state_store(kit.plain("store"), "p")


def with_table(kit: Kit) -> Topology:
    return with_global_store(kit.topology("in"), "table", "g", "gt", "gp")


def global_store_of_processor(kit: Kit) -> Topology:
    topology = with_global_store(one_processor(kit), "table", "g", "gt", "gp")
    return topology.connect_processor_and_state_stores("p", "table")


_WRONG: dict[str, Build] = {
    "node-twice": lambda kit: kit.topology("in").add_processor("source", passing(), ["source"]),
    "source-twice": lambda kit: source(kit.topology("in"), "source", "other"),
    "sink-twice": lambda kit: sink(kit.topology("in"), "source", "out", "source"),
    "topic-twice": lambda kit: source(kit.topology("in"), "other", "in"),
    "no-topics": lambda kit: Topology().add_source("source", [], key_serde=STRING, value_serde=STRING),
    "unknown-parent": lambda kit: kit.topology("in").add_processor("p", passing(), ["nobody"]),
    "unknown-parent-of-sink": lambda kit: sink(kit.topology("in"), "sink", "out", "nobody"),
    "own-parent": lambda kit: kit.topology("in").add_processor("p", passing(), ["p"]),
    "no-parents": lambda kit: kit.topology("in").add_processor("p", passing(), []),
    "sink-as-parent": lambda kit: sink(kit.topology("in"), "sink", "out", "source").add_processor(
        "p", passing(), ["sink"]
    ),
    "two-stores-of-one-name": two_stores_of_one_name,
    "store-of-unknown-processor": lambda kit: kit.topology("in").add_state_store(kit.plain("store"), "nobody"),
    "store-of-source": lambda kit: kit.topology("in").add_state_store(kit.plain("store"), "source"),
    "unknown-store": lambda kit: one_processor(kit).connect_processor_and_state_stores("p", "nothing"),
    "global-topic-is-read": lambda kit: with_global_store(kit.topology("in"), "table", "g", "in", "gp"),
    "topic-of-global-store": lambda kit: source(with_table(kit), "other", "gt"),
    "global-names-equal": lambda kit: with_global_store(kit.topology("in"), "table", "g", "gt", "g"),
    "global-source-twice": lambda kit: with_global_store(kit.topology("in"), "table", "source", "gt", "gp"),
    "global-store-twice": lambda kit: with_global_store(with_table(kit), "table", "g2", "gt2", "gp2"),
    "global-store-of-processor": global_store_of_processor,
}

WRONG_TOPOLOGIES: dict[str, Build] = {f"wrong-{name}": build for name, build in _WRONG.items()}
