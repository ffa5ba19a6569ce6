"""Ratios of an earlier day, in a file, and what is a loss beside them.

A ratio is time by a reference's time, measured in turn in one process: less is better.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

LOSS = 0.2
"""Of what was recorded: more is a failure."""
RENEW = "make bench-check ARGS=--record"
ATTEMPTS = 3
Ratios = Mapping[str, float]


class BaselineError(Exception):
    """The file of the baseline is missing, or is not one."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} can't be used: {reason}. Restore it from git, or record it anew: {RENEW}")


class Verdict(Enum):
    """What a comparison comes to, as its table says it."""

    KEPT = "kept"
    BETTER = "better: record it"
    LOST = "LOST"
    NOT_FOUND = "NOT MEASURED: record anew if it is gone"
    NOT_RECORDED = "NOT RECORDED: record it"

    @property
    def is_failure(self) -> bool:
        """Whether the check fails by it. What is not recorded would not be watched by anything."""
        return self not in (Verdict.KEPT, Verdict.BETTER)


@dataclass(frozen=True)
class Comparison:
    """A ratio beside what was recorded of it. None: there is none."""

    name: str
    recorded: float | None
    found: float | None

    @property
    def allowed(self) -> float | None:
        """The most that is no loss."""
        return None if self.recorded is None else self.recorded * (1 + LOSS)

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        if self.recorded is None or self.allowed is None:
            return Verdict.NOT_RECORDED
        if self.found is None:
            return Verdict.NOT_FOUND
        if self.found > self.allowed:
            return Verdict.LOST
        return Verdict.BETTER if self.found * (1 + LOSS) < self.recorded else Verdict.KEPT


@dataclass(frozen=True)
class Baseline:
    """Recorded ratios, and when and with which Python they were."""

    ratios: Ratios
    recorded: str
    python: str

    @staticmethod
    def of(ratios: Ratios) -> Baseline:
        """Return the baseline that `ratios` make today, here."""
        return Baseline(ratios, datetime.now(timezone.utc).date().isoformat(), platform.python_version())

    @staticmethod
    def read(path: Path) -> Baseline:
        """Return what `path` has. Raises BaselineError, which says what to do."""
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            baseline = Baseline(read["ratios"], read["recorded"], read["python"])
            are_positive = all(math.isfinite(ratio) and ratio > 0 for ratio in baseline.ratios.values())
        except FileNotFoundError:
            raise BaselineError(path, "it is missing") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BaselineError(path, f"{type(error).__name__}: {error}") from error
        if not are_positive:
            raise BaselineError(path, "a ratio is not a positive number")
        if not isinstance(baseline.recorded, str) or not isinstance(baseline.python, str):
            raise BaselineError(path, "when or with which Python it was recorded is not text")
        return baseline

    def write(self, path: Path) -> None:
        """Write it, with how to renew it."""
        ratios = {name: float(f"{ratio:.4g}") for name, ratio in self.ratios.items()}
        text = {"renew": RENEW, "recorded": self.recorded, "python": self.python, "ratios": ratios}
        path.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")

    def compare(self, found: Ratios) -> list[Comparison]:
        """Return every ratio that was recorded or found, in the order of the baseline."""
        names = [*self.ratios, *(name for name in found if name not in self.ratios)]
        return [Comparison(name, self.ratios.get(name), found.get(name)) for name in names]

    def check(self, measure: Callable[[Sequence[str] | None], Ratios]) -> list[Comparison]:
        """Return what `measure` finds beside the baseline; what seems lost is measured again, up to ATTEMPTS times.

        `measure` is called with the names to measure, None for all. The least of a ratio counts: a disturbance that
        strikes one side of it only makes one attempt wrong, a loss all of them.
        """
        found = dict(measure(None))
        for _ in range(ATTEMPTS - 1):
            lost = [each.name for each in self.compare(found) if each.verdict is Verdict.LOST]
            if not lost:
                break
            found |= {name: min(ratio, found[name]) for name, ratio in measure(lost).items()}
        return self.compare(found)


def table(comparisons: Sequence[Comparison]) -> str:
    """Return the comparisons as lines: ratio, recorded, found, allowed, verdict."""
    width = max((len(each.name) for each in comparisons), default=0)
    lines = [f"{'ratio':{width}}{'recorded':>10}{'found':>10}{'allowed':>10}"]
    for each in comparisons:
        figures = "".join(
            f"{'-' if figure is None else f'{figure:.3g}':>10}" for figure in (each.recorded, each.found, each.allowed)
        )
        lines.append(f"{each.name:{width}}{figures}   {each.verdict.value}")
    return "\n".join(lines)
