"""What a user asks of a migration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from statestore.recovery.commit.pointer import CommitPointer
from upgrade_tools.states.state import StateOptions


class TargetFormat(str, Enum):
    """The format that stores get; sessions and versions, which have no timestamped format, keep theirs for that."""

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
    """What is said of a store where its files do not tell, under its name; under None, of all others."""
    subtopology: int | None = None
    """Whose tasks are read, and the first number of the names of those that are made."""
    application_id: str | None = None
    """Of Kafka Streams; None is what the source says, or else the name of the directory of the target."""
    pointers: Sequence[CommitPointer] | None = None
    """What is committed of a source that is a state location."""
    through_timestamped: bool = False
    """Whether plain entries may become entries with headers at once, by way of the timestamped format."""
    timestamp_ms: int | None = None
    """What an entry gets whose timestamp is not known, as none has that was plain; None leaves it at -1, as Kafka."""
    shard_by: str = "key"
    """How records find the shards of a new location: `key`, which is proved, or `partition`."""
    shards: int | None = None
    """How many partitions the application has; None is one more than the last that is there."""
    missing_are_empty: bool = False
    """Whether partitions of which there is no task have no state, and do not lie on another machine."""
    expiry_headers: Mapping[str, str] = field(default_factory=dict)
    """The header by which the entries of a store expire, by store, in a new location."""
    changelog_offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The last offset of changelog topics and partitions that the source has taken in, where it does not say so."""
    discard_backup: bool = False
    """Whether what was there before a migration in place is removed once the new is in its place."""
    work_dir: str | None = None
    dry_run: bool = False
    downgrade: bool = False
    """Whether stores get an older format, losing what that has no room for, and none a newer one."""

    def options_for(self, store: str | None) -> StateOptions:
        """Return what is said of a store."""
        found = self.store_options.get(store, self.store_options.get(None))
        return found if found is not None else StateOptions()
