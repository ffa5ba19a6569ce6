"""The targets of statestore against the other peers of the same run, and whether they are met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.catalogue import DSL_PEERS
from benchmarks.peers.figures import PeerFigures

Figures = Mapping[str, PeerFigures]


@dataclass(frozen=True)
class Target:
    """A figure of a peer, most often a ratio to another peer's, with its limit: the least or the most it may be."""

    peer: str
    what: str
    figure: Callable[[Figures], float]
    """Raises KeyError if a peer has no figures in this run."""
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, figure: float) -> bool:
        """Return whether a figure keeps both limits."""
        return (self.at_least is None or figure >= self.at_least) and (self.at_most is None or figure <= self.at_most)

    @property
    def limit(self) -> str:
        """The limit in words."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


@dataclass(frozen=True)
class Verdict:
    """A target and what the run says of it; None stands for a figure that it does not have."""

    target: Target
    figure: float | None

    @property
    def outcome(self) -> str:
        """The verdict in words."""
        if self.figure is None:
            return "not measured"
        return "met" if self.target.is_met(self.figure) else "NOT MET"


def median_rate(figures: Figures, peer: str) -> float:
    """Return a peer's records a second. Raises KeyError if it has none."""
    return figures[peer]["records_per_s"]["median"]


def rate_by(figures: Figures, peer: str, *others: str) -> float:
    """Return a peer's records a second by those of the best of others. Raises KeyError if one has none."""
    return median_rate(figures, peer) / max(median_rate(figures, other) for other in others)


def dsl_rates(figures: Figures) -> dict[str, float]:
    """Return, by operator, this DSL's records a second by Kafka's on as many threads as suit it, as far as they ran."""
    return {
        operator: rate_by(figures, own.name, *(peer.name for peer in kafka))
        for operator, (*kafka, own) in DSL_PEERS.items()
        if all(peer.name in figures for peer in (*kafka, own))
    }


def _faster(peer: str, *others: str, at_least: float) -> Target:
    return Target(
        peer,
        f"records/s : {' or '.join(others)}'s",
        lambda figures: rate_by(figures, peer, *others),
        at_least=at_least,
    )


def _of_operators(what: str, choose: Callable[[Iterable[float]], float], at_least: float) -> Target:
    def figure(figures: Figures) -> float:
        if not (rates := dsl_rates(figures)):
            raise KeyError(DSL)
        return choose(rates.values())

    return Target(DSL, f"records/s of {what} operator : Kafka's", figure, at_least=at_least)


def _of_every_path(peer: str) -> list[Target]:
    through = "spark-pass-through"
    return [
        Target(
            peer,
            f"Java's time a record : {through}'s",
            lambda figures: figures[peer]["steady_cpu_us"]["java"] / figures[through]["steady_cpu_us"]["java"],
            at_most=1.3,
        ),
        _faster(peer, "spark-python-state", at_least=50),
        Target(peer, "peak PSS, MB", lambda figures: figures[peer]["peak_pss_mb"], at_most=1300),
        Target(
            peer,
            f"first output after {through}'s, s",
            lambda figures: figures[peer]["first_output_s"] - figures[through]["first_output_s"],
            at_most=4.5,
        ),
    ]


def _python_time(peer: str, at_most: float) -> Target:
    return Target(
        peer, "Python's time a record, us", lambda figures: figures[peer]["steady_cpu_us"]["python"], at_most=at_most
    )


SCALAR: Final = "statestore-scalar"
BATCH: Final = "statestore-batch"
DSL: Final = "statestore-dsl"
FIRST_TARGETS: Final = (
    _faster(SCALAR, "streams-alo", at_least=0.65),
    _python_time(SCALAR, at_most=10),
    _faster(SCALAR, "quix", at_least=2),
    *_of_every_path(SCALAR),
    _faster(BATCH, "streams-alo", at_least=0.9),
    _faster(BATCH, "streams-eos", at_least=1),
    _python_time(BATCH, at_most=4),
    _faster(BATCH, "quix", at_least=2.5),
    *_of_every_path(BATCH),
)
STEADY_TARGETS: Final = (
    _faster(BATCH, "streams-alo", "streams-alo-2", at_least=1.2),
    _faster(f"{BATCH}-eos", "streams-eos", "streams-eos-2", at_least=1.3),
    _of_operators("the slowest", min, 0.8),
    _of_operators("the median", statistics.median, 1),
)


def verdicts(targets: Iterable[Target], found: Iterable[PeerFigures]) -> list[Verdict]:
    """Return what a run says of each target."""
    by_name = {figures["peer"]: figures for figures in found}
    said = []
    for target in targets:
        try:
            figure: float | None = target.figure(by_name)
        except KeyError:
            figure = None
        said.append(Verdict(target, figure))
    return said
