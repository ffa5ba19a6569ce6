"""A stream in branches, each record in one of them. Source: Kafka Streams' BranchedKStream and Branched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from statestore.dsl.functions import Function, of_key_and_value
from statestore.dsl.processors.stateless import Branching, BranchingColumns, PassThrough, PassThroughColumns
from statestore.dsl.stream_graph import GraphNode, Stage
from statestore.errors import TopologyError
from statestore.processor.processor import ProcessorSupplier

Stream = TypeVar("Stream")
"""The class of streams."""


class BranchedKStream(Generic[Stream]):
    """Sends each record to the first branch whose predicate is true; to none if none is.

    A branch is named by the name of the split followed by its own `name`; if that is None, by its number, which is 0
    for the default. A `chain` is a function of the branch's stream: the stream that it returns replaces the branch's in
    the result; if it returns None, the branch is not in the result.
    """

    def __init__(self, stage: Stage, make: Callable[[Stage], Stream], name: str | None) -> None:
        self._stage, self._make = stage, make
        self._node = stage.graph.new_name("KSTREAM-BRANCH-", name)
        self._branches: list[tuple[Function, str]] = []
        self._default: str | None = None
        self._streams: dict[str, Stream] = {}
        stage.graph.add(GraphNode(self._node, (stage.node,), self._supplier))

    def branch(
        self,
        predicate: Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        chain: Callable[[Stream], Stream | None] | None = None,
    ) -> BranchedKStream[Stream]:
        """Add a branch of the records for which this predicate of key and value is the first that is true.

        Raises TopologyError if the name is taken, or if the function does not take a key and a value.
        """
        test = of_key_and_value("branch()", predicate)
        self._branches.append((test, self._add(str(len(self._branches) + 1) if name is None else name, chain)))
        return self

    def default_branch(
        self, *, name: str | None = None, chain: Callable[[Stream], Stream | None] | None = None
    ) -> dict[str, Stream]:
        """Add a branch of all other records, and return the stream of each branch by its name.

        Raises TopologyError if the name is taken, or if there is a default branch already.
        """
        if self._default is not None:
            raise TopologyError(f"{self._node!r} has a default branch, {self._default!r}: give it only one")
        self._default = self._add("0" if name is None else name, chain)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, Stream]:
        """Return the stream of each branch by its name."""
        return dict(self._streams)

    def _add(self, name: str, chain: Callable[[Stream], Stream | None] | None) -> str:
        graph, child = self._stage.graph, self._node + name
        graph.new_name(child)  # Kafka takes a number and does not use it
        columns = PassThroughColumns if self._stage.in_columns else None
        graph.add(GraphNode(child, (self._node,), graph.either_way(child, PassThrough, columns)))
        stream = self._make(self._stage._replace(node=child))
        kept = stream if chain is None else chain(stream)
        if kept is not None:
            self._streams[child] = kept
        return child

    def _supplier(self) -> ProcessorSupplier:
        branches = tuple(self._branches), self._default
        columns = partial(BranchingColumns, *branches) if self._stage.in_columns else None
        return self._stage.graph.either_way(self._node, partial(Branching, *branches), columns)()
