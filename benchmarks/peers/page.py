"""The tables of a run in Markdown: on the console, and in docs/peers.md between two marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.figures import PeerFigures
from benchmarks.peers.targets import TARGETS, verdicts

PROGRAM: Final = "make bench-peers"
BEGIN: Final = f"<!-- what {PROGRAM} writes begins -->\n"
END: Final = f"<!-- what {PROGRAM} writes ends -->\n"
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
    records: int
    rounds: int

    def sentence(self) -> str:
        """Return it as a line of the page."""
        named = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        load = f"load {self.load_before:.1f} before the start, {self.load_most:.1f} at most"
        said = " **Other work shared the machine: rates and times to first output say little.**"
        busy = said if self.load_most > _OWN_LOAD else ""
        return f"{self.day}, {self.cores} cores, {load}, {self.records:,} records, {self.rounds} rounds. {named}.{busy}"


def tables(setting: Setting, found: Sequence[PeerFigures], without: Mapping[str, str]) -> str:
    """Return what a run says: figures, peers `without` any and why, and targets."""
    return "\n".join([setting.sentence(), "", *_figures(found), *_without(without), "", *_targets(found), ""])


def write_page(page: Path, text: str, program: str = PROGRAM) -> None:
    """Replace what is between the marks that `program` has in a page. Raises ValueError if it does not have them."""
    first, last = (mark.replace(PROGRAM, program) for mark in (BEGIN, END))
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} does not have the lines {first.strip()} and {last.strip()}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _figures(found: Sequence[PeerFigures]) -> list[str]:
    anchor = next((each["records_per_s"]["median"] for each in found if each["peer"] == _ANCHOR), None)
    lines = [
        f"| peer | engine | records/s: min / median / max | x {_ANCHOR} | Python, us | Java, us | broker, us "
        "| peak PSS, MB | first output, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        rates, cpu_us = each["records_per_s"], each["steady_cpu_us"]
        cells = [
            f"`{each['peer']}`",
            PEERS[each["peer"]].engine,
            f"{rates['min']:,.0f} / {rates['median']:,.0f} / {rates['max']:,.0f}",
            f"{rates['median'] / anchor:.2f}" if anchor else "",
            f"{cpu_us['python']:,.1f}",
            f"{cpu_us['java']:,.1f}",
            f"{each['broker_cpu_us']:,.1f}",
            f"{each['peak_pss_mb']:,.0f}",
            f"{each['first_output_s']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _without(without: Mapping[str, str]) -> list[str]:
    return ["", *(f"- `{peer}` has no figures: {reason}." for peer, reason in without.items())] if without else []


def _targets(found: Sequence[PeerFigures]) -> list[str]:
    said: dict[str, dict[str, str]] = {}
    for verdict in verdicts(found):
        target = verdict.target
        figure = "" if verdict.figure is None else f"{verdict.figure:,.2f}, "
        said.setdefault(target.what, {})[target.peer] = f"{figure}{target.limit}: {verdict.outcome}"
    peers = list(dict.fromkeys(target.peer for target in TARGETS))
    lines = [f"| target, of medians | {' | '.join(f'`{peer}`' for peer in peers)} |", "|---" * (len(peers) + 1) + "|"]
    return lines + [f"| {what} | {' | '.join(of.get(peer, '') for peer in peers)} |" for what, of in said.items()]
