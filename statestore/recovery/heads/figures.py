"""What a head tells people of batches and shards: nothing depends on it.

"recent":  [{"batch": int, "time_ms": int, "duration_ms": int, "records": int, "delta_bytes": int,
             "times": {PHASE: ms, ...}}, ...]                                  the latest batches, oldest first
"calls":   {SHARD: {"batch": int, "duration_ms": int,
                    "sizes": {STORE: [entries, size_bytes, header_bytes]}}}    the last call of each shard
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from statestore.format.json_fields import whole_number
from statestore.recovery.commit.figures import SizeFigures

MAX_RECENT: Final = 60


class RecentBatch(NamedTuple):
    """A batch in figures."""

    batch: int
    time_ms: int
    """When it was reported, since the epoch."""
    duration_ms: int
    """How long Spark's batch took, with all other operators."""
    records: int
    """How many came in."""
    delta_bytes: int
    times: Mapping[str, int]
    """Milliseconds by phase, summed over the shard calls, which run side by side."""


class LastCall(NamedTuple):
    """A shard's last call in figures."""

    batch: int
    duration_ms: int
    sizes: Mapping[str, SizeFigures]
    """By store, after the batch."""


class HeadFigures(NamedTuple):
    """The figures of one batch, or those that a head has of several."""

    recent: tuple[RecentBatch, ...] = ()
    calls: Mapping[int, LastCall] = {}

    def then(self, batch: HeadFigures) -> HeadFigures:
        """Return the figures after one more batch."""
        calls = {**self.calls, **batch.calls}
        return HeadFigures((*self.recent, *batch.recent)[-MAX_RECENT:], dict(sorted(calls.items())))

    def before(self, batch: int) -> HeadFigures:
        """Return what is known of older batches."""
        return HeadFigures(
            tuple(each for each in self.recent if each.batch < batch),
            {shard: call for shard, call in self.calls.items() if call.batch < batch},
        )

    def sizes(self) -> dict[str, dict[int, SizeFigures]]:
        """Return by store and shard how large a store was after the shard's last call."""
        found: dict[str, dict[int, SizeFigures]] = {}
        for shard, call in self.calls.items():
            for store, sizes in call.sizes.items():
                found.setdefault(store, {})[shard] = sizes
        return found

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the head's JSON."""
        return {
            "recent": [each._asdict() for each in self.recent],
            "calls": {str(shard): call._asdict() for shard, call in self.calls.items()},
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> HeadFigures:
        """Return what `to_fields` gave. Raises one of MALFORMED."""
        return cls(
            tuple(_recent(each) for each in fields["recent"]),
            {whole_number(int(shard), 0): _last_call(call) for shard, call in fields["calls"].items()},
        )


def _recent(fields: Mapping[str, Any]) -> RecentBatch:
    times = {str(phase): whole_number(ms, 0) for phase, ms in fields["times"].items()}
    batch, time_ms, duration_ms, records, size = (whole_number(fields[name], 0) for name in RecentBatch._fields[:-1])
    return RecentBatch(batch, time_ms, duration_ms, records, size, times)


def _last_call(fields: Mapping[str, Any]) -> LastCall:
    sizes = {str(store): _sizes(figures) for store, figures in fields["sizes"].items()}
    return LastCall(whole_number(fields["batch"], 0), whole_number(fields["duration_ms"], 0), sizes)


def _sizes(figures: Sequence[int]) -> SizeFigures:
    return SizeFigures(*(whole_number(figure, 0) for figure in figures))
