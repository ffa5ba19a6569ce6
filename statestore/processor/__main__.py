"""`python -m statestore.processor MODULE:NAME`: what the stages of a program hold, for tools that do not run it.

NAME is a Topology, or a function without arguments that returns one. What is printed is JSON:

{"stages": [{"stores": [StoreSpec as JSON, ...],   those that Kafka Streams has changelogs of
             "beside": [str, ...],                 those that follow from them: they begin empty
             "reads": [str, ...],                  topics, also repartition topics, but none of global stores
             "topology": [node as JSON, ...]}, ...],
 "input_topics": [str, ...] | null,                null if the program reads whatever topics the query reads
 "repartition_topics": [str, ...],
 "expiry_headers": {STORE: HEADER}}
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from statestore.errors import StateStoreError
from statestore.processor.stages import TopologyStage, stages_of
from statestore.processor.topology import Topology


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the document of a program; return 0 if all is well, 1 if there is no such program, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m statestore.processor", description="Look into a program.")
    parser.add_argument("program", metavar="MODULE:NAME", help="a Topology, or a function that returns one")
    try:
        print(json.dumps(program_document(_program(parser.parse_args(arguments).program))))
    except (ImportError, AttributeError, TypeError, StateStoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def program_document(topology: Topology) -> dict[str, Any]:
    """Return what is said of a program. Raises TopologyError if it can't run in stages."""
    sources = topology.sources.values()
    topics = {topic for source in sources for topic in source.topics or ()} - topology.repartition_topics
    lives = {
        name: builder.time_to_live for name, builder in topology.store_builders.items() if builder.format.has_headers
    }
    return {
        "stages": [_stage_document(stage) for stage in stages_of(topology)],
        "input_topics": None if any(source.topics is None for source in sources) else sorted(topics),
        "repartition_topics": sorted(topology.repartition_topics),
        "expiry_headers": {name: life.header for name, life in lives.items() if life is not None and life.header},
    }


def _stage_document(stage: TopologyStage) -> dict[str, Any]:
    part = stage.topology
    beside = {*part.expiry_stores.values(), *(name for node in part.processors.values() for name in node.undescribed)}
    without_changelog = {*part.global_stores, *beside}
    read = [source for source in part.sources.values() if source.takes_time_on]
    return {
        "stores": [spec.to_json() for spec in part.store_specs() if spec.name not in without_changelog],
        "beside": sorted(beside),
        "reads": sorted(topic for source in read for topic in source.topics or ()),
        "topology": part.to_json(),
    }


def _program(text: str) -> Topology:
    module, _, name = text.partition(":")
    if not module or not name:
        raise TypeError(f"{text!r} is not MODULE:NAME, as in shop:topology")
    found = getattr(importlib.import_module(module), name)
    made = found() if callable(found) else found
    if not isinstance(made, Topology):
        raise TypeError(f"{text} must be a Topology, or a function that returns one, not {type(made).__name__}")
    return made


if __name__ == "__main__":
    sys.exit(main())
