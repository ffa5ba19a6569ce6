"""When the punctuations of a shard are due next, as the commit pointer records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias


class RecordedPunctuation(NamedTuple):
    """A schedule: the name of its clock, its interval, and when it is due next; None if it was cancelled."""

    type: str
    interval_ms: int
    next_ms: int | None


RecordedPunctuations: TypeAlias = "Mapping[str, Sequence[RecordedPunctuation]]"
"""The schedules of each node, in the order in which its `init` made them."""


def punctuations_from_json(fields: Any) -> dict[str, tuple[RecordedPunctuation, ...]]:
    """Return what json.loads made of RecordedPunctuations. Raises ValueError or TypeError if it is not that."""
    return {str(node): tuple(_recorded(*schedule) for schedule in schedules) for node, schedules in fields.items()}


def _recorded(type_name: Any, interval_ms: Any, next_ms: Any) -> RecordedPunctuation:
    return RecordedPunctuation(str(type_name), int(interval_ms), None if next_ms is None else int(next_ms))
