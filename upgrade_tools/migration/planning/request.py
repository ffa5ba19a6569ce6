"""What a user asks of a migration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from statestore.recovery.commit.pointer import CommitPointer
from upgrade_tools.states.state import StateOptions


class TargetFormat(str, Enum):
    """The format that stores get; sessions and versions, which have no timestamped format, keep theirs."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"
    HEADERS = "headers"


class TargetLayout(str, Enum):
    """Where the entries go."""

    KAFKA_STREAMS = "kafka-streams"
    LOCATION = "location"


@dataclass(frozen=True)
class MigrationRequest:
    """A migration of the state at `source`, a path or URI, to `target`; a target of None is the same directory."""

    source: str
    target: str | None = None
    to: TargetFormat | None = None
    """None leaves stores in the newest format that they have."""
    layout: TargetLayout | None = None
    """None is the layout of the source."""
    stores: Sequence[str] = ()
    """Which stores; none are all."""
    store_options: Mapping[str | None, StateOptions] = field(default_factory=dict)
    """Options of single stores by name, and of all others under None, for what the files do not say."""
    subtopology: int | None = None
    """Whose tasks to read; also the first number in the names of new task directories."""
    application_id: str | None = None
    """application.id of Kafka Streams; None is what the source says, or else the name of the target's directory."""
    pointers: Sequence[CommitPointer] | None = None
    """What is committed of a source that is a state location."""
    through_timestamped: bool = False
    """Whether plain entries may become entries with headers at once, by way of the timestamped format."""
    timestamp_ms: int | None = None
    """Timestamp for entries without a known one, such as plain ones; None leaves it at -1, as Kafka does."""
    shard_by: str = "key"
    """How records are placed on the shards of a new location: by `key`, which is checked, or `partition`."""
    shards: int | None = None
    """How many partitions the application has; None is one more than the highest one found."""
    missing_are_empty: bool = False
    """Whether partitions without a task here have no state, rather than being on another machine."""
    expiry_headers: Mapping[str, str] = field(default_factory=dict)
    """The header by which the entries of a store expire, by store, in a new location."""
    changelog_offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The last changelog offsets in the source, by topic and partition, where it does not record them."""
    discard_backup: bool = False
    """Whether to remove the backup of a migration in place once the new directory is in its place."""
    work_dir: str | None = None
    dry_run: bool = False
    downgrade: bool = False
    """Whether stores get an older format, losing what that has no room for, instead of a newer one."""

    def options_for(self, store: str | None) -> StateOptions:
        """Return the options of a store."""
        found = self.store_options.get(store, self.store_options.get(None))
        return found if found is not None else StateOptions()
