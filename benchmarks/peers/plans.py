"""What a run of `make bench-peers` measures: from the first minute on, or at steady state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.catalogue import DSL_PEERS, PEERS, Peer
from benchmarks.peers.targets import FIRST_TARGETS, STEADY_TARGETS, Target


@dataclass(frozen=True)
class Plan:
    """Which peers run, over how much, and what of it counts."""

    name: str
    """Of what it writes."""
    command: str
    """What starts it, and the page names."""
    records: int
    """Slow peers have fewer."""
    batches: int
    """How many micro-batches a peer that has them takes for all records."""
    steady_from: float
    """The part of the records that is start-up: neither rate nor processor time has it in it."""
    rounds: int
    peers: tuple[Peer, ...]
    targets: Sequence[Target]


_COMMAND: Final = "make bench-peers"
_STEADY_OPERATORS: Final = (
    "count",
    "tumbling windows",
    "tumbling windows, on close",
    "tumbling windows, by suppress()",
    "sessions",
    "stream-stream join",
    "table-table join",
)
_SLOW: Final = ("quix", "spark-python-state", "spark-python-state-rows")
FIRST: Final = Plan("peers", _COMMAND, 1_000_000, 4, 0.25, 5, tuple(PEERS.values()), FIRST_TARGETS)
STEADY: Final = Plan(
    "peers-steady",
    f"{_COMMAND} ARGS=--steady",
    5_000_000,
    20,
    0.5,
    3,
    (
        *(peer for peer in PEERS.values() if peer.name not in _SLOW),
        *(peer for operator in _STEADY_OPERATORS for peer in DSL_PEERS[operator]),
    ),
    STEADY_TARGETS,
)
