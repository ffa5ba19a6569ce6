"""A stream in branches, each record in one of them. Source: Kafka Streams' BranchedKStream and Branched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from statestore.dsl.functions import Function, checked
from statestore.dsl.processors.stateless import Branching, PassThrough
from statestore.dsl.stream_graph import GraphNode, Stage

Stream = TypeVar("Stream")
"""The class of streams."""

_BRANCH = "KSTREAM-BRANCH-"


class BranchedKStream(Generic[Stream]):
    """Sends each record to the first branch whose predicate it meets; to none, if it meets none.

    `name` is added to that of the split, which together name the branch; without it, the number of the branch is. A
    `chain` is a function of the branch's stream: what it returns takes the place of the stream, or nothing does.
    """

    def __init__(self, stage: Stage, make: Callable[[Stage], Stream], name: str | None) -> None:
        self._stage, self._make = stage, make
        self._node = stage.graph.new_name(_BRANCH, name)
        self._predicates: list[Function] = []
        self._children: list[str] = []
        self._branches: dict[str, Stream] = {}
        stage.graph.add(GraphNode(self._node, (stage.node,), self._supplier))

    def branch(
        self,
        predicate: Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        chain: Callable[[Stream], Stream | None] | None = None,
    ) -> BranchedKStream[Stream]:
        """Add a branch of the records for which a predicate of key and value is true, and which no earlier one has."""
        self._predicates.append(checked("branch()", predicate, "key", "value"))
        self._add(str(len(self._predicates)) if name is None else name, chain)
        return self

    def default_branch(
        self, *, name: str | None = None, chain: Callable[[Stream], Stream | None] | None = None
    ) -> dict[str, Stream]:
        """Add a branch of all other records, and return the stream of each branch by its name."""
        self._add("0" if name is None else name, chain)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, Stream]:
        """Return the stream of each branch by its name."""
        return dict(self._branches)

    def _add(self, name: str, chain: Callable[[Stream], Stream | None] | None) -> None:
        graph, child = self._stage.graph, self._node + name
        graph.new_name(child)  # Kafka takes a number, and does without it
        graph.add(GraphNode(child, (self._node,), lambda: PassThrough))
        self._children.append(child)
        stream = self._make(self._stage._replace(node=child, in_columns=False))
        kept = stream if chain is None else chain(stream)
        if kept is not None:
            self._branches[child] = kept

    def _supplier(self) -> partial[Branching]:
        return partial(Branching, tuple(self._predicates), tuple(self._children))
