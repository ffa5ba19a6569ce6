"""Draws a file of results as an SVG: rates with their spread, and where the processor's time goes.

    python plot.py peers.json peers.svg

It runs in the benchmark's own environment (environment.py), which has matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

OWN, OTHERS, OWN_NAME = "#c8553d", "#588b8b", "statestore"
KINDS = (("python", "Python", "#e0a458"), ("java", "Java", "#3d5a80"))


def draw(figures: list[dict[str, Any]], path: Path) -> None:
    """Draw the peers from top to bottom, the fastest first."""
    figures = sorted(figures, key=lambda each: each["records_per_s"]["median"])
    names = [each["peer"] for each in figures]
    # The same figures are to be the same file: no date, and no random names of its parts.
    matplotlib.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none"})
    figure, (rates, times) = pyplot.subplots(1, 2, figsize=(11, 0.5 * len(names) + 1.4), sharey=True)
    medians = [each["records_per_s"]["median"] for each in figures]
    spreads = [
        [median - each["records_per_s"]["min"] for median, each in zip(medians, figures, strict=True)],
        [each["records_per_s"]["max"] - median for median, each in zip(medians, figures, strict=True)],
    ]
    colours = [OWN if name.startswith(OWN_NAME) else OTHERS for name in names]
    rates.barh(names, medians, xerr=spreads, color=colours, ecolor="#333333", capsize=3)
    rates.set_title("records/s: median, least and most")
    rates.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    # Spark's own Python state takes a hundred times as long: its bar would leave nothing of the others.
    shown = [sum(each["steady_cpu_us"].values()) for each in figures]
    limit = 1.15 * max((total for total in shown if total < 10 * min(shown)), default=max(shown))
    left = [0.0] * len(figures)
    for kind, label, colour in KINDS:
        widths = [each["steady_cpu_us"][kind] for each in figures]
        times.barh(names, widths, left=left, color=colour, label=label)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    for row, total in enumerate(shown):
        if total > limit:
            times.text(0.98 * limit, row, f"{total:,.0f} in all →", ha="right", va="center")
    times.set_xlim(0, limit)
    times.set_title("processor time a record, us, steady")
    times.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
