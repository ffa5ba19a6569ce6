"""What a batch leaves beside its writes: the driver says it once, when it commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statestore.recovery.commit.punctuations import RecordedPunctuations


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
