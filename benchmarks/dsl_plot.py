"""Draws what benchmarks/dsl.py has measured as an SVG: rates by Spark's, and where the processor's time goes.

    python dsl_plot.py dsl.json dsl.svg

It runs in the environment of `make bench-peers`, which has matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

SPARKS = ("Spark's own", "Spark's own, headers kept")
"""The first one begins an operator's bars."""
OWN, OTHERS = "#c8553d", "#588b8b"
KINDS = (("python_us", "Python", "#e0a458"), ("java_us", "JVM", "#3d5a80"))


def draw(found: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw the operators from top to bottom, each with Spark's own above its forms."""
    rows = [(name, form, taken) for name, forms in found.items() for form, taken in forms.items()][::-1]
    labels = [f"{name}: {form}" if form == SPARKS[0] else form for name, form, _ in rows]
    # Half a bar of room above Spark's, which ends an operator's bars.
    places = [row + sum(form == SPARKS[0] for _, form, _ in rows[:row]) / 2 for row in range(len(rows))]
    # The same figures are to be the same file: no date, and no random names of its parts.
    matplotlib.rcParams.update({"svg.hashsalt": "dsl", "svg.fonttype": "none"})
    figure, (rates, times) = pyplot.subplots(1, 2, figsize=(11, 0.3 * max(places) + 1.4), sharey=True)
    colours = [OTHERS if form in SPARKS else OWN for _, form, _ in rows]
    rates.barh(places, [1e6 / taken["clock_us"] for *_, taken in rows], color=colours)
    rates.set_yticks(places, labels)
    rates.set_title("rows/s")
    rates.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    left: Any = [0.0] * len(rows)
    for kind, label, colour in KINDS:
        widths = [taken[kind] for *_, taken in rows]
        times.barh(places, widths, left=left, color=colour, label=label)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    times.set_title("processor time a row, us")
    times.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text())["queries"], Path(sys.argv[2]))
