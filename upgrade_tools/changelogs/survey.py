"""Checks a state and the logs of its changelogs before the first record is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from statestore.recovery.commit.changelog import ChangelogRecord
from upgrade_tools.changelogs.in_order_of_time import in_order_of_time
from upgrade_tools.changelogs.restored_log import RestoredLog
from upgrade_tools.changelogs.state_records import StoreRecords, differences
from upgrade_tools.changelogs.topic_setup import StoreTopic
from upgrade_tools.errors import ChangelogError

_DELETE = "Delete the topic, and the application's local state, and run this again; nothing was written to it"

OpenLog = Callable[[StoreTopic, int], AbstractContextManager[RestoredLog]]
"""Hands out what a partition of a topic restores to."""


@dataclass
class Survey:
    """Reads all of a state and of its topics, and raises the reason if the state can't be written."""

    open_log: OpenLog
    work_dir: str | None
    oldest_ms: dict[str, int] = field(default_factory=dict)
    """By store, the earliest timestamp that the broker must not delete yet."""

    def see(self, topic: StoreTopic, part: int, wanted: StoreRecords, records: Iterable[ChangelogRecord]) -> None:
        """Read a store of a part; `records` are those of `wanted`, as they are read.

        Raises ChangelogError, and what reading raises.
        """
        seen = _Seen(wanted)
        if not topic.is_there:
            _read(_sendable(topic, part, seen.of(records)))
        else:
            with self.open_log(topic, part) as log:
                missing = _sendable(topic, part, log.lacks(seen.of(records)))
                if wanted.layout.keeps_versions:
                    self._refuse_lasting_versions(topic, part, wanted, log, missing)
                else:
                    _read(missing)
                    _refuse_expired(topic, part, seen, log.records())
        topic.refuse_too_old(seen.oldest_ms)
        if seen.oldest_ms is not None:
            self.oldest_ms[topic.spec.name] = min(seen.oldest_ms, self.oldest_ms.get(topic.spec.name, seen.oldest_ms))

    def _refuse_lasting_versions(
        self, topic: StoreTopic, part: int, wanted: StoreRecords, log: RestoredLog, missing: Iterator[ChangelogRecord]
    ) -> None:
        """Refuse to write versions behind others that would stay beside those of the state."""
        with in_order_of_time(missing, self.work_dir) as in_order:
            log.restore(in_order)
        for found in differences(topic.spec, wanted, log.records()):
            raise ChangelogError(
                topic.name,
                f"its versions in partition {part} keep key 0x{found.key.hex()} from becoming what it is in the state, "
                f"and versions can't be deleted. {_DELETE}",
            )


class _Seen:
    """What was noted about a store while its records were read."""

    def __init__(self, wanted: StoreRecords) -> None:
        self._wanted = wanted
        self.oldest_ms: int | None = None
        """The earliest timestamp of a record that must stay. For a version, the following one's counts: the broker
        compacts it away when both are old."""
        self.first: tuple[int, bytes] | None = None
        """Time and key of the earliest window or session that reads show."""

    def of(self, records: Iterable[ChangelogRecord]) -> Iterator[ChangelogRecord]:
        """Yield the records, and note them."""
        layout = self._wanted.layout
        previous_key = None
        for record in records:
            if layout.keeps_versions:
                if record.key == previous_key and record.timestamp_ms >= self._wanted.first_visible_ms:
                    self._must_stay(record)
                previous_key = record.key
            elif layout.has_timed_keys and self._wanted.shows(record):
                self._must_stay(record)
                place = layout.put_time_ms(record.key), record.key
                self.first = place if self.first is None else min(place, self.first)
            yield record

    def _must_stay(self, record: ChangelogRecord) -> None:
        self.oldest_ms = record.timestamp_ms if self.oldest_ms is None else min(record.timestamp_ms, self.oldest_ms)


def _sendable(topic: StoreTopic, part: int, records: Iterable[ChangelogRecord]) -> Iterator[ChangelogRecord]:
    """Yield the records. Raises ChangelogError for a timestamp that the client would replace."""
    for record in records:
        if record.timestamp_ms <= 0:
            raise ChangelogError(
                f"{topic.name}, partition {part}",
                f"the version of key 0x{record.key.hex()} from {record.timestamp_ms} ms on can't be written: clients "
                "send no such time, and the key has a version from 1 ms on already, which would stand for it. Run the "
                "query until the store's history no longer reaches back so far, and run this again; nothing was "
                "written",
            )
        yield record


def _read(records: Iterable[ChangelogRecord]) -> None:
    for _ in records:
        pass


def _refuse_expired(topic: StoreTopic, part: int, seen: _Seen, log: StoreRecords) -> None:
    """Refuse to write windows and sessions behind others by whose times they have expired."""
    if seen.first is None or seen.first[0] >= log.first_visible_ms:
        return
    first_ms, key = seen.first
    raise ChangelogError(
        topic.name,
        f"its records in partition {part} reach {log.stream_time_ms} ms, and by that time key 0x{key.hex()} of the "
        f"state, of {first_ms} ms, has expired. {_DELETE}",
    )
