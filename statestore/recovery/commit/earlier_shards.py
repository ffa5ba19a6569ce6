"""What the shards of a state had seen of event time when it got another number of shards.

A shard that was made of others begins with the earliest of their times. What one of them had seen beyond that stays
known beside it for as long as the new shard has not seen as much: by that is judged what comes late for its keys.

    earlier := [{"shards": int, "by": "key" | "partition", "seen": {shard: [[kind, name, time_ms], ...], ...}}, ...]
    kind    := "shard" | "store" | "processor"

There is one for each number of shards; `by` says by what records were placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from statestore.errors import NewStateError
from statestore.format.json_fields import whole_number

TIME_SUFFIX: Final = "-stream-time"
"""What the name of processor metadata ends with that is the latest time which a node has seen."""
MAX_EARLIER: Final = 16
"""How many numbers of shards are known beside the present one."""
_KINDS: Final = frozenset({"shard", "store", "processor"})


class Clock(NamedTuple):
    """Who sees event time: the shard as a whole, one of its stores, or a processor by a name of its metadata."""

    kind: str
    name: str = ""


SHARD_CLOCK: Final = Clock("shard")

SeenTimes: TypeAlias = "Mapping[Clock, int]"
"""The latest time that each clock of a shard has seen, in ms since the epoch."""


class EarlierShards(NamedTuple):
    """A number of shards that a state had before, and what each of them had seen, by its number then."""

    shards: int
    by: str
    """What records were placed by: "key", or "partition"."""
    seen: Mapping[int, SeenTimes]


def beyond(earlier: Iterable[EarlierShards], seen: SeenTimes) -> tuple[EarlierShards, ...]:
    """Return what is known of earlier shards without what a shard that has `seen` so much has seen itself."""
    left = [each._replace(seen=_left(each.seen, seen)) for each in earlier]
    return tuple(each for each in left if each.seen)


def joined(earlier: Iterable[EarlierShards]) -> tuple[EarlierShards, ...]:
    """Return what several know of earlier shards, one for each number of shards. Raises NewStateError if too many."""
    by_number: dict[tuple[int, str], dict[int, dict[Clock, int]]] = {}
    for shards, by, seen in earlier:
        for shard, times_ms in seen.items():
            known = by_number.setdefault((shards, by), {}).setdefault(shard, {})
            for clock, time_ms in times_ms.items():
                known[clock] = max(known.get(clock, time_ms), time_ms)
    if len(by_number) > MAX_EARLIER:
        raise NewStateError(
            f"its shards have not seen yet what they had seen with {len(by_number)} other numbers of shards, and "
            f"{MAX_EARLIER} are kept: let the query run until all shards have seen the latest time, and stop it again"
        )
    return tuple(EarlierShards(*number, by_number[number]) for number in sorted(by_number))


def earlier_to_json(earlier: Iterable[EarlierShards]) -> list[dict[str, Any]]:
    """Return what `earlier_from_json` takes."""
    return [{"shards": shards, "by": by, "seen": _to_json(seen)} for shards, by, seen in earlier]


def earlier_from_json(recorded: Any) -> tuple[EarlierShards, ...]:
    """Return what json.loads made of it. Raises ValueError, TypeError, KeyError or AttributeError if it is not that."""
    if not isinstance(recorded, list) or len(recorded) > MAX_EARLIER:
        raise ValueError(f"what earlier shards had seen is a list of {MAX_EARLIER} numbers of shards at most")
    return tuple(_earlier_of(fields) for fields in recorded)


def _earlier_of(fields: Any) -> EarlierShards:
    shards, by = whole_number(fields["shards"], 1), fields["by"]
    if by not in ("key", "partition"):
        raise ValueError(f"records are placed by key or partition, not by {by!r}")
    seen = {whole_number(int(shard), 0): dict(map(_seen_of, times)) for shard, times in fields["seen"].items()}
    if seen and max(seen) >= shards:
        raise ValueError(f"there is no shard {max(seen)} of {shards}")
    return EarlierShards(shards, by, seen)


def _seen_of(recorded: Any) -> tuple[Clock, int]:
    kind, name, time_ms = recorded
    if kind not in _KINDS or not isinstance(name, str):
        raise ValueError(f"{kind!r} of name {name!r} is no clock")
    return Clock(kind, name), whole_number(time_ms, 0)


def _to_json(seen: Mapping[int, SeenTimes]) -> dict[str, list[list[Any]]]:
    return {str(shard): [[*clock, time_ms] for clock, time_ms in times.items()] for shard, times in seen.items()}


def _left(earlier: Mapping[int, SeenTimes], seen: SeenTimes) -> dict[int, SeenTimes]:
    left = {
        shard: {clock: time_ms for clock, time_ms in times.items() if time_ms > seen.get(clock, -1)}
        for shard, times in earlier.items()
    }
    return {shard: times for shard, times in left.items() if times}
