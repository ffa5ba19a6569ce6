"""What a commit pointer has beside files: when punctuations are due, numbers of processors, what earlier shards saw.

Processor metadata are whole numbers by name. Source: KIP-825.

A shard that was made of others by rescaling begins with the earliest of their times. What one of them had seen beyond
that is kept until the new shard has seen as much: it says what comes late for that one's keys. There is one entry for
each earlier number of shards; `by` is how records were placed.

    earlier := [{"shards": int, "by": "key" | "partition", "seen": {shard: [[kind, name, time_ms], ...], ...}}, ...]
    kind    := "shard" | "store" | "processor"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from statestore.errors import NewStateError
from statestore.format.json_fields import whole_number

MAX_NAMES: Final = 1_000
"""How many names a shard has room for: each batch reads and writes them all."""
COUNT_PREFIX: Final = "#"
"""The prefix of names whose number counts what the shard holds and is no time: rescaling leaves it out."""
_MAX_NAME_BYTES: Final = 249
"""As for the name of a store."""
_LOWEST: Final = -(2**63)


def check_entry(name: Any, value: Any) -> None:
    """Raise ValueError unless `name` has 1 to 249 bytes of UTF-8, and `value` is a signed whole number of 64 bits."""
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8")) <= _MAX_NAME_BYTES:
        raise ValueError(f"a name must have 1 to {_MAX_NAME_BYTES} bytes of UTF-8, not {str(name)[:20]!r}")
    try:
        whole_number(value, _LOWEST)
    except ValueError as cause:
        raise ValueError(f"{name!r}: {cause}") from cause


def processor_metadata_from_json(entries: Any) -> dict[str, int]:
    """Return the metadata in a pointer's JSON. Raises ValueError, or AttributeError if it is no mapping."""
    found: dict[str, int] = dict(entries.items())
    if len(found) > MAX_NAMES:
        raise ValueError(f"{len(found)} names, a shard has room for {MAX_NAMES}")
    for name, value in found.items():
        check_entry(name, value)
    return found


class RecordedPunctuation(NamedTuple):
    """A schedule. A start of None: none was asked for. A next time of None: it was cancelled."""

    type: str
    interval_ms: int
    start_ms: int | None
    next_ms: int | None


RecordedPunctuations: TypeAlias = "Mapping[str, Sequence[RecordedPunctuation]]"
"""The schedules of each node, in the order in which its `init` made them."""


def punctuations_from_json(fields: Any) -> dict[str, tuple[RecordedPunctuation, ...]]:
    """Return the punctuations in a pointer's JSON. Raises ValueError, which names the node, or AttributeError."""
    found = {}
    for node, schedules in fields.items():
        try:
            found[str(node)] = tuple(_parse(*schedule) for schedule in schedules)
        except (ValueError, TypeError) as cause:
            raise ValueError(f"node {node!r}: {cause}") from cause
    return found


def _parse(type_name: Any, interval_ms: Any, start_ms: Any, next_ms: Any) -> RecordedPunctuation:
    return RecordedPunctuation(
        str(type_name),
        whole_number(interval_ms, 1),
        None if start_ms is None else whole_number(start_ms, 0),
        None if next_ms is None else whole_number(next_ms, 0),
    )


@dataclass(frozen=True)
class BatchEnd:
    """What a commit pointer takes over from a batch. Times are milliseconds since the epoch."""

    skipped_records: int = 0
    """How many of the batch's records no serde could read."""
    stream_time_ms: int = -1
    """The highest timestamp so far; -1 if there was no record yet."""
    store_times_ms: Mapping[str, int] = field(default_factory=dict)
    """The stream time of each store that keeps one; the others keep what they had."""
    punctuations: RecordedPunctuations | None = None
    """When each schedule is due next; None means as before."""
    processor_metadata: Mapping[str, int] = field(default_factory=dict)
    """The numbers that processors have set; those of other names stay as before."""


TIME_SUFFIX: Final = "-stream-time"
"""The suffix of names of processor metadata whose number is the latest time that a node has seen."""
MAX_EARLIER: Final = 16
"""How many earlier numbers of shards are kept."""
_KINDS: Final = frozenset({"shard", "store", "processor"})


class Clock(NamedTuple):
    """Who sees event time: the shard as a whole, one of its stores, or a processor by a name of its metadata."""

    kind: str
    name: str = ""


SHARD_CLOCK: Final = Clock("shard")

SeenTimes: TypeAlias = "Mapping[Clock, int]"
"""The latest time that each clock of a shard has seen, in ms since the epoch."""


class EarlierShards(NamedTuple):
    """A number of shards that a state had before, and what each of them had seen, by its index then."""

    shards: int
    by: str
    """What records were placed by: "key", or "partition"."""
    seen: Mapping[int, SeenTimes]


def beyond(earlier: Iterable[EarlierShards], seen: SeenTimes) -> tuple[EarlierShards, ...]:
    """Return what earlier shards had seen beyond what a shard has `seen` itself."""
    left = [each._replace(seen=_left(each.seen, seen)) for each in earlier]
    return tuple(each for each in left if each.seen)


def joined(earlier: Iterable[EarlierShards]) -> tuple[EarlierShards, ...]:
    """Merge what several shards know of earlier ones, by number of shards. Raises NewStateError for too many."""
    by_number: dict[tuple[int, str], dict[int, dict[Clock, int]]] = {}
    for shards, by, seen in earlier:
        for shard, times_ms in seen.items():
            known = by_number.setdefault((shards, by), {}).setdefault(shard, {})
            for clock, time_ms in times_ms.items():
                known[clock] = max(known.get(clock, time_ms), time_ms)
    if len(by_number) > MAX_EARLIER:
        raise NewStateError(
            f"its shards still lag behind what they had seen with {len(by_number)} other numbers of shards, and "
            f"{MAX_EARLIER} are kept: let the query run until all shards have seen the latest time, then stop it"
        )
    return tuple(EarlierShards(*number, by_number[number]) for number in sorted(by_number))


def earlier_to_json(earlier: Iterable[EarlierShards]) -> list[dict[str, Any]]:
    """Return what `earlier_from_json` takes."""
    return [
        {
            "shards": shards,
            "by": by,
            "seen": {
                str(shard): [[*clock, time_ms] for clock, time_ms in times.items()] for shard, times in seen.items()
            },
        }
        for shards, by, seen in earlier
    ]


def earlier_from_json(recorded: Any) -> tuple[EarlierShards, ...]:
    """Return the earlier shards in a pointer's JSON. Raises ValueError, TypeError, KeyError or AttributeError."""
    if not isinstance(recorded, list) or len(recorded) > MAX_EARLIER:
        raise ValueError(f"not a list of at most {MAX_EARLIER} earlier numbers of shards")
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
        raise ValueError(f"{kind!r} with the name {name!r} is not a clock")
    return Clock(kind, name), whole_number(time_ms, 0)


def _left(earlier: Mapping[int, SeenTimes], seen: SeenTimes) -> dict[int, SeenTimes]:
    left = {
        shard: {clock: time_ms for clock, time_ms in times.items() if time_ms > seen.get(clock, -1)}
        for shard, times in earlier.items()
    }
    return {shard: times for shard, times in left.items() if times}
