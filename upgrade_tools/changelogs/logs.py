"""The log of a changelog's partition, and its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from statestore.recovery.commit.changelog import ChangelogRecord
from upgrade_tools.errors import ChangelogDamagedError


class LogRecord(NamedTuple):
    """A record as it stands in a partition's log."""

    offset: int
    record: ChangelogRecord


@dataclass(frozen=True)
class PartitionLog:
    """The log of one partition of a changelog topic, from `first_offset` up to `end_offset`, which is exclusive."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    may_have_gaps: bool
    """Whether offsets may be missing: compaction removes records, and the ends of transactions take offsets."""
    deleted_before_ms: int | None = None
    """Records before this time may be missing at the beginning, deleted by the broker; None if none are."""

    @property
    def span(self) -> int:
        """How many offsets there are; there may be fewer records."""
        return self.end_offset - self.first_offset

    @property
    def place(self) -> str:
        """The topic and the partition, in words."""
        return f"{self.topic}, partition {self.partition}"

    def refused(self, offset: int, problem: str) -> ChangelogDamagedError:
        """Return the error for a record that no store of the given kind writes."""
        return ChangelogDamagedError(
            f"{self.place}, offset {offset}",
            f"{problem}. Check the kind given for the store; if it is right, something else has written to the "
            "topic, and the store can't be restored from it",
        )


class OffsetCheck:
    """Checks the offsets of a log's records: they increase, and none is missing that should be there."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.last_offset = log.first_offset - 1
        """Offset of the last record."""

    def see(self, offset: int) -> None:
        """Note a record's offset. Raises ChangelogDamagedError."""
        if offset <= self.last_offset:
            raise self._log.refused(
                offset,
                f"it comes after offset {self.last_offset}, so these are not the records of a log in their order",
            )
        self._refuse_gap(offset)
        self.last_offset = offset

    def finish(self) -> None:
        """Note that there are no more records. Raises ChangelogDamagedError."""
        self._refuse_gap(self._log.end_offset)

    def _refuse_gap(self, offset: int) -> None:
        if offset > self.last_offset + 1 and not self._log.may_have_gaps:
            raise ChangelogDamagedError(
                self._log.place,
                f"there are no records from offset {self.last_offset + 1} to {offset - 1}, and the topic is "
                "not compacted. If the application processes exactly once, its transactions leave such gaps: give "
                "--transactional. If not, records are lost, and only a copy of the local state has them",
            )
