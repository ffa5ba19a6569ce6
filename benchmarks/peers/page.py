"""The tables of a run in Markdown: on the console, and between the two marks of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import DSL_PEERS, PEERS
from benchmarks.peers.figures import PeerFigures
from benchmarks.peers.plans import Plan
from benchmarks.peers.targets import Target, dsl_rates, verdicts

_ANCHOR: Final = "streams-alo"
_OWN_LOAD: Final = 6.0
"""What a peer and the broker make by themselves on two cores is 2 to 4."""


@dataclass(frozen=True)
class Setting:
    """Where and how a run was made."""

    day: str
    cores: int
    load_before: float
    """Processes that wanted a core in the minute before the start."""
    load_most: float
    """The same at the end of a run of a peer, the most of all runs; its own processes are among them."""
    versions: Mapping[str, str]
    broker_looking_cores: float
    """What the broker takes of a core to be asked how many records are there."""
    plan: Plan

    def sentence(self) -> str:
        """Return it as a line of the page."""
        plan = self.plan
        named = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        load = f"load {self.load_before:.1f} before the start, {self.load_most:.1f} at most"
        batch = plan.records // plan.batches
        sizes = f"{plan.records:,} records, {batch:,} a batch, measured from {plan.steady_from:.0%} on"
        said = " **Other work shared the machine: rates and times to first output say little.**"
        busy = said if self.load_most > _OWN_LOAD else ""
        return f"{self.day}, {self.cores} cores, {load}; {sizes}, {plan.rounds} rounds. {named}.{busy}"


def tables(setting: Setting, found: Sequence[PeerFigures], without: Mapping[str, str]) -> str:
    """Return what a run says: figures, peers `without` any and why, and targets."""
    own = max((each["looking_cores"] for each in found), default=0)
    looking = f"Looking took at most {own:.1%} of a core, in the broker {setting.broker_looking_cores:.1%}."
    parts = (_figures(found), _operators(found), _without(without), _targets(setting.plan.targets, found))
    return "\n\n".join(["\n".join(part) for part in ([setting.sentence()], *parts, [looking]) if part]) + "\n"


def write_page(page: Path, text: str, program: str) -> None:
    """Replace what is between the marks that `program` has in a page. Raises ValueError if it does not have them."""
    first, last = (f"<!-- what {program} writes {mark} -->\n" for mark in ("begins", "ends"))
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} does not have the lines {first.strip()} and {last.strip()}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _table(*rows: Sequence[str]) -> list[str]:
    """Return a table, of which the first row is the head; nothing if there is no other."""
    head, *others = [f"| {' | '.join(cells)} |" for cells in rows]
    return [head, "|---" * len(rows[0]) + "|", *others] if others else []


def _figures(found: Sequence[PeerFigures]) -> list[str]:
    found = [each for each in found if each["peer"] in PEERS]
    anchor = next((each["records_per_s"]["median"] for each in found if each["peer"] == _ANCHOR), None)
    head = ["peer", "records/s (least-most)", f"x {_ANCHOR}", "Python, us", "Java, us", "broker, us"]
    return _table([*head, "peak PSS, MB", "first output, s"], *(_row_of(each, anchor) for each in found))


def _row_of(each: PeerFigures, anchor: float | None) -> list[str]:
    rates, cpu_us = each["records_per_s"], each["steady_cpu_us"]
    return [
        f"`{each['peer']}`",
        _rate(rates),
        f"{rates['median'] / anchor:.2f}" if anchor else "",
        f"{cpu_us['python']:,.1f}",
        f"{cpu_us['java']:,.1f}",
        f"{each['broker_cpu_us']:,.1f}",
        f"{each['peak_pss_mb']:,.0f}",
        f"{each['first_output_s']:.1f}",
    ]


def _rate(rates: Mapping[str, float]) -> str:
    median, *ends = (f"{rates[name]:,.0f}" for name in ("median", "min", "max"))
    return median if ends == [median, median] else f"{median} ({'-'.join(ends)})"


def _operators(found: Sequence[PeerFigures]) -> list[str]:
    """Return a table of the operators of both DSLs, as far as all of an operator's peers have figures."""
    by_name = {each["peer"]: each for each in found}
    rows = []
    for operator, ratio in dsl_rates(by_name).items():
        *kafka, own = [by_name[peer.name] for peer in DSL_PEERS[operator]]
        rates = [f"{each['records_per_s']['median']:,.0f}" for each in (*kafka, own)]
        cpu_us = [f"{sum(each['steady_cpu_us'].values()):.1f}" for each in (kafka[0], own)]
        rows.append([operator, *rates, f"{ratio:.2f}", *cpu_us])
    head = ["operator", "Kafka's DSL, records/s", "two threads", "here", "x the better"]
    return _table([*head, "Kafka's CPU, us", "here"], *rows)


def _without(without: Mapping[str, str]) -> list[str]:
    return [f"- `{peer}` has no figures: {reason}." for peer, reason in without.items()]


def _targets(targets: Sequence[Target], found: Sequence[PeerFigures]) -> list[str]:
    said: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts(targets, found):
        figure = "" if verdict.figure is None else f"{verdict.figure:,.2f}, "
        target = verdict.target
        said.setdefault((target.peer, verdict.outcome), []).append(f"{target.what} {figure}{target.limit}")
    return [f"- `{peer}`, {outcome}: {'; '.join(each)}." for (peer, outcome), each in said.items()]
