"""What a batch leaves beside its writes, for the commit pointer: when punctuations are due, numbers of processors.

Processor metadata are whole numbers by name. Source: KIP-825.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from statestore.format.json_fields import whole_number

MAX_NAMES: Final = 1_000
"""How many names a shard has room for: each batch reads and writes them all."""
COUNT_PREFIX: Final = "#"
"""What a name begins with whose number is a count of what the shard holds, and no time: rescaling leaves it out."""
_MAX_NAME_BYTES: Final = 249
"""As a store's name, which Kafka Streams uses."""
_LOWEST: Final = -(2**63)


def check_entry(name: Any, value: Any) -> None:
    """Raise ValueError unless this is a name of 1 to 249 bytes of UTF-8, and a whole number of 64 bits, signed."""
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8")) <= _MAX_NAME_BYTES:
        raise ValueError(f"a name must have 1 to {_MAX_NAME_BYTES} bytes of UTF-8, not {str(name)[:20]!r}")
    try:
        whole_number(value, _LOWEST)
    except ValueError as cause:
        raise ValueError(f"{name!r}: {cause}") from cause


def processor_metadata_from_json(entries: Any) -> dict[str, int]:
    """Return what json.loads made of a shard's metadata. Raises ValueError, or AttributeError if it is no mapping."""
    found: Mapping[str, int] = dict(entries.items())
    if len(found) > MAX_NAMES:
        raise ValueError(f"{len(found)} names, a shard has room for {MAX_NAMES}")
    for name, value in found.items():
        check_entry(name, value)
    return dict(found)


class RecordedPunctuation(NamedTuple):
    """A schedule. A start of None was not asked for, a next time of None means that it was cancelled."""

    type: str
    interval_ms: int
    start_ms: int | None
    next_ms: int | None


RecordedPunctuations: TypeAlias = "Mapping[str, Sequence[RecordedPunctuation]]"
"""The schedules of each node, in the order in which its `init` made them."""


def punctuations_from_json(fields: Any) -> dict[str, tuple[RecordedPunctuation, ...]]:
    """Return what json.loads made of it. Raises ValueError, which names the node, or AttributeError."""
    return {str(node): _schedules(str(node), schedules) for node, schedules in fields.items()}


def _schedules(node: str, schedules: Any) -> tuple[RecordedPunctuation, ...]:
    try:
        return tuple(_parse(*schedule) for schedule in schedules)
    except (ValueError, TypeError) as cause:
        raise ValueError(f"node {node!r}: {cause}") from cause


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
