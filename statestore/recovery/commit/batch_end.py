"""What a batch leaves beside its writes, as when punctuations are due next: the commit pointer records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from statestore.format.json_fields import whole_number


class RecordedPunctuation(NamedTuple):
    """A schedule: the name of its clock, its interval, where its grid was asked to start, and when it is due next.

    A start of None was not asked for, a next time of None means that it was cancelled.
    """

    type: str
    interval_ms: int
    start_ms: int | None
    next_ms: int | None


RecordedPunctuations: TypeAlias = "Mapping[str, Sequence[RecordedPunctuation]]"
"""The schedules of each node, in the order in which its `init` made them."""


def punctuations_from_json(fields: Any) -> dict[str, tuple[RecordedPunctuation, ...]]:
    """Return what json.loads made of RecordedPunctuations.

    Raises ValueError, which names the node, or AttributeError if it is not that.
    """
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
