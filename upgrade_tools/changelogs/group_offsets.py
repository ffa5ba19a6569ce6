"""Where the input of an application stands: the offsets of its consumer group, and those of Spark's Kafka source.

Both name the next record to be read, so they differ in form only: {"TOPIC": {"PARTITION": OFFSET}} in Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from upgrade_tools.changelogs.cluster import Cluster, Offsets
from upgrade_tools.changelogs.logs import PartitionLog
from upgrade_tools.changelogs.reading import has_records
from upgrade_tools.errors import GroupOffsetsError

EARLIEST: Final = -2
"""What Spark calls the beginning of a partition."""
_REPARTITION: Final = re.compile(
    r"-repartition$|(^KTABLE-FK-JOIN-|-)subscription-(registration|response)(-[0-9]{10})?-topic$", re.IGNORECASE
)
"""Topics of joins by foreign keys are called otherwise. Source: Kafka's KTableImpl.doJoinOnForeignKey."""


def starting_offsets(
    cluster: Cluster,
    application_id: str,
    topics: Collection[str] = (),
    *,
    repartition_topics: Collection[str] = (),
    goes_on_itself: bool = False,
) -> Offsets:
    """Return where a query that continues for an application must begin to read, as `startingOffsets` takes it.

    `topics` are the query's; if empty, all topics that the group has committed offsets of, except repartition topics:
    those that are called so, and `repartition_topics`. Spark wants every partition: one without an offset was not read
    yet, and begins at its beginning, as Kafka Streams would. Raises ChangelogMissingError for a missing topic, and
    GroupOffsetsError if an offset is not in its topic, or if a repartition topic that the query does not read has
    records that were not processed; not if the application `goes_on_itself`.
    """
    committed = cluster.committed(application_id)
    repartition = {topic for topic in committed if _is_repartition(application_id, topic)}
    repartition.update(cluster.topics().keys() & {*repartition_topics})
    begins = {
        topic: {
            partition: committed.get(topic, {}).get(partition, EARLIEST)
            for partition in range(cluster.partitions(topic))
        }
        for topic in sorted(topics or committed.keys() - repartition)
    }
    if not goes_on_itself:
        for topic in sorted(repartition.difference(topics)):
            _refuse_unprocessed(cluster, application_id, topic, committed.get(topic, {}))
        for topic in begins.keys() & committed.keys():
            _refuse_not_there(
                cluster,
                application_id,
                topic,
                committed[topic],
                remedy=". Set where it continues with `changelog offsets --set`, and run this again",
            )
    return begins


def offsets_json(offsets: Offsets) -> str:
    """Return offsets as `startingOffsets` takes them."""
    return json.dumps({topic: _by_name(partitions) for topic, partitions in sorted(offsets.items())})


def parse_source_offsets(application_id: str, text: str) -> Offsets:
    """Return the offsets in what `python -m statestore.spark offsets` prints: a line for each source, some empty.

    Raises GroupOffsetsError if a line is not that of a Kafka source, or if two of them read the same topic.
    """
    offsets: Offsets = {}
    for line in filter(str.strip, text.splitlines()):
        try:
            found = json.loads(line)
            source = {
                str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
                for topic, partitions in found.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError) as cause:
            raise GroupOffsetsError(
                application_id, f"{line[:200]!r} is not the offsets of a Kafka source ({cause})"
            ) from cause
        for topic, partitions in source.items():
            if topic in offsets:
                raise GroupOffsetsError(
                    application_id, f"two sources read {topic}, and a group has only one offset for each partition"
                )
            offsets[topic] = partitions
    if not offsets:
        raise GroupOffsetsError(application_id, "none were given")
    return offsets


def set_group_offsets(cluster: Cluster, application_id: str, offsets: Offsets) -> None:
    """Let the application continue from these offsets. Its group must have no members.

    Raises ApplicationRunningError, ChangelogMissingError, GroupOffsetsError, KafkaUnavailableError.
    """
    cluster.refuse_running(application_id)
    for topic, partitions in offsets.items():
        _refuse_not_there(cluster, application_id, topic, partitions)
    cluster.commit(application_id, offsets)


def _refuse_not_there(
    cluster: Cluster, application_id: str, topic: str, offsets: Mapping[int, int], *, remedy: str = ""
) -> None:
    ends = cluster.log_ends(topic, cluster.partitions(topic))
    for partition, offset in sorted(offsets.items()):
        if partition >= len(ends):
            raise GroupOffsetsError(application_id, f"{topic} has no partition {partition}")
        first, end = ends[partition].first_offset, ends[partition].end_offset
        if not first <= offset <= end:
            raise GroupOffsetsError(
                application_id,
                f"{topic}, partition {partition} has the offsets {first} to {end}, but not {offset}: the offsets are "
                "those of another topic, or records were deleted before they were read"
                f"{remedy}",
            )


def _refuse_unprocessed(cluster: Cluster, application_id: str, topic: str, committed: Mapping[int, int]) -> None:
    for partition, ends in enumerate(cluster.log_ends(topic, cluster.partitions(topic))):
        begin = max(committed.get(partition, 0), ends.first_offset)
        # Offsets alone do not show it: each end of a transaction takes one, too.
        log = PartitionLog(topic, partition, begin, max(begin, ends.stable_end_offset), may_have_gaps=True)
        open_transaction = ends.end_offset > max(begin, ends.stable_end_offset)
        if open_transaction or has_records(cluster, log):
            raise GroupOffsetsError(
                application_id,
                f"{topic}, partition {partition} has records from offset {begin} on that the application has "
                "not processed, and a query that does not read it would miss them. Start the application, let nothing "
                "write to its input until it has, and stop it; or have the query read the topic, and name all that it "
                "reads with --input-topic",
            )


def _is_repartition(application_id: str, topic: str) -> bool:
    """Return whether a topic is called as those are that an application writes and reads itself."""
    beginning = f"{application_id}-"
    return topic.startswith(beginning) and _REPARTITION.search(topic.removeprefix(beginning)) is not None


def _by_name(partitions: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(partitions.items())}


def _offset(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError(f"not an offset: {found!r}")
    return found
