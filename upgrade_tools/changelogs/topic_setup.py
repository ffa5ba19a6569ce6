"""How long a changelog topic keeps what a store needs.

A store forgets by the latest time that was put into it, the broker by its own clock and the timestamps of records. So
if the times of a state lag behind the clock, its topic must keep records that much longer.

    window, session    retention.ms             then a record is deleted
    versioned          min.compaction.lag.ms    then a version is compacted away for the one that follows it
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.recovery.commit.changelog import ChangelogRecord
from upgrade_tools.changelogs.cluster import Cluster, TopicSettings
from upgrade_tools.errors import ChangelogError

ADDITIONAL_RETENTION_MS: Final = 24 * 60 * 60 * 1000
"""How much longer than the store the topic keeps: windowstore.changelog.additional.retention.ms of Kafka Streams."""
_RETENTION, _COMPACTION_LAG = "retention.ms", "min.compaction.lag.ms"


@dataclass(frozen=True)
class StoreTopic:
    """The changelog topic of a store, which exists or has to be created."""

    spec: StoreSpec
    name: str
    partitions: int
    is_there: bool = False
    keeps_ms: int | None = None
    """How old a record may be by the broker's clock; None if that does not matter."""
    header_bytes: bytes = b""
    """What Kafka Streams has as headers of each record with a value, where those are not the value's."""

    def sent(self, record: ChangelogRecord) -> ChangelogRecord:
        """Return a record as it is to be sent."""
        without = not self.header_bytes or record.value is None
        return record if without else record._replace(header_bytes=self.header_bytes)

    def refuse_too_old(self, oldest_ms: int | None) -> None:
        """Raise ChangelogError if the topic would not keep a record of this time, which the store needs."""
        if oldest_ms is None or self.keeps_ms is None or oldest_ms >= _now_ms() - self.keeps_ms:
            return
        setting, enough_ms = _setting(self.spec), _enough_ms(self.spec, oldest_ms)
        raise ChangelogError(
            self.name,
            f"it has {setting}={self.keeps_ms}, by the broker's clock, and the state needs records from {oldest_ms} ms "
            "on, which are older and would be lost. "
            f"Set the topic's {setting} to {enough_ms} first, until the application has caught up; nothing was "
            "written to it",
        )


def topic_config(spec: StoreSpec, oldest_ms: int | None = None) -> Mapping[str, str]:
    """Return how Kafka Streams sets up the changelog topic of a store (InternalTopicConfig and its subclasses).

    Records from `oldest_ms` on stay for at least the time that Kafka Streams adds to the retention, from now.
    """
    config = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    if not spec.kind.is_segmented:
        return config
    if not LAYOUTS[spec.kind].keeps_versions:
        config["cleanup.policy"] = "compact,delete"
    return {**config, _setting(spec): str(_enough_ms(spec, oldest_ms))}


def existing_topic(cluster: Cluster, spec: StoreSpec, topic: str, partitions: int) -> StoreTopic:
    """Return a topic that exists. Raises ChangelogError if it would not keep records as long as the store does."""
    settings = cluster.settings(topic)
    keeps_ms = None
    if LAYOUTS[spec.kind].keeps_versions and settings.compacts:
        keeps_ms = settings.compaction_lag_ms
    elif not LAYOUTS[spec.kind].keeps_versions and settings.deletes:
        keeps_ms = settings.retention_ms
    _refuse_unfit(spec, topic, settings, keeps_ms)
    return StoreTopic(spec, topic, partitions, is_there=True, keeps_ms=keeps_ms)


def _refuse_unfit(spec: StoreSpec, topic: str, settings: TopicSettings, keeps_ms: int | None) -> None:
    problem = None
    deletes = f"deletes records after retention.ms={settings.retention_ms}"
    if settings.log_append_time:
        problem = "has message.timestamp.type=LogAppendTime, and so would lose the times of values"
    elif settings.deletes and not spec.kind.is_segmented:
        problem = f"{deletes}, and the store keeps its values for ever"
    elif settings.deletes and (LAYOUTS[spec.kind].keeps_versions or settings.retention_ms < spec.retention[0]):
        problem = f"{deletes}, and the store keeps its entries longer"
    elif keeps_ms is not None and keeps_ms < spec.retention[0]:
        problem = f"compacts versions away after {_COMPACTION_LAG}={keeps_ms}, and the store keeps them longer"
    if problem is not None:
        wanted = ", ".join(f"{name}={value}" for name, value in topic_config(spec).items())
        raise ChangelogError(
            topic, f"it {problem}. Set the topic up as Kafka Streams does: {wanted}; nothing was written to it"
        )


def _setting(spec: StoreSpec) -> str:
    return _COMPACTION_LAG if LAYOUTS[spec.kind].keeps_versions else _RETENTION


def _enough_ms(spec: StoreSpec, oldest_ms: int | None) -> int:
    age_ms = 0 if oldest_ms is None else _now_ms() - oldest_ms
    return max(spec.retention[0], age_ms) + ADDITIONAL_RETENTION_MS


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
