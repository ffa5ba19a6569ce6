"""Draws what benchmarks/growth.py has measured as an SVG.

    python growth_plot.py growth.json growth.svg

It runs in the environment of `make bench-peers`, which has matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

DRAWN = {
    "keys": ("scalar, least", "scalar, mean", "columns, least", "columns, mean"),
    "headers": ("scalar, least", "columns, least"),
    "shards": ("scalar, least", "columns, least"),
    "batches": ("old : young, CPU", "old : young, clock"),
}
"""Of each part, the series that are drawn, in the order of the picture."""
LOGARITHMIC = ("keys",)


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw a picture for each part that was measured."""
    parts = [part for part in DRAWN if part in found]
    # The same figures are to be the same file: no date, and no random names of its parts.
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(1, len(parts), figsize=(4 * len(parts), 3.4), squeeze=False)
    for part, picture in zip(parts, axes[0], strict=True):
        growth = found[part]
        for name in DRAWN[part]:
            picture.plot(growth["at"], growth["series"][name], marker="o", label=name)
        if part in LOGARITHMIC:
            picture.set_xscale("log")
        else:
            picture.set_xticks(growth["at"])
        picture.set_ylim(bottom=0)
        picture.set_xlabel(growth["x"])
        picture.set_ylabel("old : young" if part == "batches" else growth["unit"])
        picture.set_title(growth["title"], fontsize=9)
        picture.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
