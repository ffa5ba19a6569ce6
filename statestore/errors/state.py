"""Errors of stores, durable locations and recovery."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text


class StoreError(StateStoreError):
    """A store can't do what it was asked; `store` is its name."""

    store: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("store {store!r}: {problem}")


class StoreClosedError(StoreError):
    """The store was used after it was closed."""

    problem: str = text("is closed; keep no store or iterator beyond the call that handed it out")


class StoreFormatError(StoreError):
    """The recorded format of a store is not the one asked for; nothing was changed."""

    recorded: str
    asked: str
    where: str
    remedy: str
    problem: str = text("is recorded as {recorded} in {where}, but was asked for as {asked}. {remedy}")


class UnknownColumnFamilyError(StoreError):
    """The database at `path` has column families that no store of this kind has; nothing was changed."""

    path: str
    asked: str
    unknown: list[str]
    known: list[str]
    problem: str = text(
        "the database {path} has the column families {unknown}; a {asked}, has only {known}. Open it as the kind of "
        "store that made it, with the release that made it; or delete the local state and restore it from the changelog"
    )


class UnknownEntryError(StoreError):
    """`path` lies among the segments of the store, and is not one; nothing was changed."""

    path: str
    found: str
    problem: str = text(
        "{path} {found}, and nothing else may be there: Kafka Streams would not open the store either. Move it away, "
        "or open the store with the segment interval that it was made with"
    )


class LocalStateLockedError(StoreError):
    """Another process holds the local database at `path` open."""

    path: str
    problem: str = text("local database {path} is open in another process")


class LocalStateCorruptedError(StoreError):
    """RocksDB found damage in the local database at `path`; the durable location is not touched by it."""

    path: str
    cause: str
    problem: str = text(
        "local database {path} is damaged ({cause}). A shard's copy was discarded, and is rebuilt from the durable "
        "location when the batch runs again. Delete a store of Kafka Streams, and restore it from its changelog. If "
        "this comes back, check the disk"
    )


class LocalDiskFullError(StoreError):
    """The local disk that `path` is on has no space left; nothing of the batch was committed."""

    path: str
    cause: str
    problem: str = text(
        "there is no space left for {path} ({cause}). Nothing of the batch was committed. Free space there, or give "
        "a local_dir on a larger disk. Larger MemoryOptions (state_bytes, input_bytes) keep more of a batch in memory"
    )


class SpilledDeltaCorruptedError(StoreError):
    """What a batch spilled to `path` is not what was written there; nothing of the batch was committed."""

    path: str
    problem: str = text(
        "what the batch spilled to {path} does not read back as it was written. Nothing of the batch was committed, "
        "and its next attempt writes the file again. If this comes back, check the disk, or give a local_dir on another"
    )


class LocalDirectoryError(StateStoreError):
    """The directory for local copies can't be used; nothing of the batch was committed."""

    path: str = field(kw_only=False)
    cause: str
    message: str = text(
        "local directory {path}: can't be written ({cause}). Nothing of the batch was committed. Give a local_dir "
        "that the user who runs the executors can write to, on a disk that is not mounted read-only"
    )


class LocationError(StateStoreError):
    """The durable location can't be used."""

    location: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("state location {location}: {problem}")


class LocationNotWritableError(LocationError):
    """The durable location refuses a write."""

    cause: str
    remedy: str = "Give a state_location that the driver and every executor can read and write"
    problem: str = text("can't be written ({cause}). {remedy}")


class LocationInUseError(LocationError):
    """The durable location belongs to another query."""

    owner: str
    query: str
    problem: str = text(
        "belongs to the streaming query {owner}, this is query {query}; nothing was committed. Give each query a "
        "state_location of its own. If the checkpoint of the owning query is gone for good, its state can no "
        "longer be continued: use a new state_location"
    )


class StateUnfinishedError(LocationError):
    """A tool began to make a state in the location, from `made_from`, and has not finished."""

    made_from: str
    problem: str = text(
        "is being filled with a state made of {made_from}, or the command that filled it was stopped. Let it finish, "
        "or run the same command again; to start a query without that state, give it another location"
    )


class LocationSharedError(LocationError):
    """Two operators of one query were given the same location."""

    problem: str = text(
        "is that of two stateful() operators of one query, which would fence each other. Give each a state_location of "
        "its own"
    )


class CheckpointLocationError(LocationError):
    """The location and the query's checkpoint lie in each other or are the same, or no checkpoint was given.

    `relation` is how the location relates to the checkpoint in words, "" if Spark made up the checkpoint's name.
    """

    checkpoint: str
    relation: str
    problem: str = text(
        "{_what}. Give the query a checkpointLocation and a state_location beside each other, neither within the other"
    )

    @property
    def _what(self) -> str:
        if self.relation:
            return (
                f"{self.relation} the checkpoint {self.checkpoint}: cleaning up one of them would remove what the "
                "other needs"
            )
        return (
            f"the query was started without a checkpointLocation, so Spark keeps its checkpoint in {self.checkpoint}, "
            "where no later start looks: no query could ever continue this state. Nothing was committed"
        )


class SinkRemembersError(LocationError):
    """A file sink's directory remembers batches of another checkpoint, so Spark skips as many of this query."""

    output: str
    problem: str = text(
        "was begun with a new checkpoint while the file sink's directory {output} remembers the batches of an older "
        "one, in _spark_metadata: Spark skips as many batches silently, and their records are lost. Stop the query, "
        "and start again with a new checkpoint and another output directory"
    )


class LocationBusyError(LocationError):
    """Another query is starting on the location, or a tool is making its state: `by`, as `file` says."""

    file: str
    by: str
    problem: str = text(
        "is held by {by}, as {file} says, and was not released within seconds. Start again once that has ended. If it "
        "certainly has, remove that file and start again"
    )


class LocationMismatchError(LocationError):
    """The Spark checkpoint points at state that was written to another location."""

    recorded: str
    found: str
    problem: str = text(
        "holds state {found}, but the Spark checkpoint was made with state {recorded}. Start the query with the "
        "state_location it had before, or with a new checkpoint and a new state_location"
    )


class RunFencedError(LocationError):
    """Another run of the query, or another operator, has taken over the shard; this one can't commit any more."""

    shard: int
    run: str
    by: str
    problem: str = text(
        "shard {shard} was taken over from run {run} by {by}. Nothing of this batch was committed. Two runs "
        "use the location: the query was started twice, from a copy of its checkpoint, or still runs elsewhere, "
        "or has two stateful() operators with the same state_location. Stop the one that should not be, and start "
        "the other again"
    )


class SnapshotOverdueError(LocationError):
    """A shard has had no snapshot for too long; nothing of the batch was committed."""

    shard: int
    deltas: int
    size_bytes: int
    limit: int
    since: str
    last_failure: str
    problem: str = text(
        "shard {shard} has {deltas} deltas ({size_bytes:,} bytes) without a snapshot, since {since}; stop_after_deltas "
        "allows {limit}. The last failure: {last_failure}. Nothing of this batch was committed. Correct that "
        "and start the query again: it goes on once a snapshot is complete. To go on without one, give "
        "RecoveryOptions a larger stop_after_deltas, or 0 for no limit"
    )


class AttemptOutdatedError(LocationError):
    """The batch that this attempt works on was committed by another attempt, and later ones were built on it."""

    shard: int
    version: int
    found: int
    problem: str = text(
        "shard {shard} was at version {version} for this attempt, and version {found} is being written already: "
        "another attempt committed the batch. Nothing needs to be done: what this attempt wrote is removed as garbage"
    )


class CheckpointBehindError(LocationError):
    """The Spark checkpoint is not the one that the query went on from; nothing was changed.

    `by` is the run that went on, and `since` the last version that both have, 0 for none. `found` is the version that
    it committed on the checkpoint's own history; None if it gave that up.
    """

    shard: int
    version: int
    since: int
    by: str
    found: int | None
    problem: str = text(
        "shard {shard} is at version {version} in the Spark checkpoint, but {_what_happened}. Start the query from the "
        "checkpoint that went on. Or start it from this one with stateful(..., accept_older_checkpoint=True), which "
        "gives up what was committed since"
    )

    @property
    def _what_happened(self) -> str:
        if self.found is None:
            return (
                f"{self.by} went on without what this checkpoint has after version {self.since}, and others may have "
                "built on that"
            )
        return (
            f"version {self.found} was committed here by {self.by}: the checkpoint is an older one, or a copy of one "
            "that went on"
        )


class VersionCollectedError(LocationError):
    """A shard can't go back to a version: garbage collection removed its files, or is about to; nothing was changed.

    `file` is missing or cut; or the collection that `announced` announces covers it, None if none does.
    """

    shard: int
    version: int
    file: str
    announced: str | None = None
    problem: str = text(
        "shard {shard} can't go back to version {version}: {file}, which that needs, {_what_of_it}. Bring back missing "
        "files from a backup of the state location, or start from a checkpoint that does not need them"
    )

    @property
    def _what_of_it(self) -> str:
        if self.announced is None:
            return "is not there as it was written"
        return (
            f"may be removed at any moment by the garbage collection that {self.announced} announces. If the process "
            "that wrote that is certainly gone, remove the announcement and start again"
        )


class ViewBehindError(VersionCollectedError):
    """A view can't open a shard at its batch any more: the query went on, and its garbage collection too."""

    batch: int
    problem: str = text(
        "shard {shard} can't be opened at version {version}, where it was at batch {batch}: {file} was removed as "
        "garbage, as the query went on. Call refresh() and read again: the view is then at the newest batch"
    )


class RecoveryError(StateStoreError):
    """Committed state can't be read back; `where` is the file."""

    where: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{where}: {problem}")


class UnsafeNameError(RecoveryError, ValueError):
    """A name that was read and would become part of a path could lead elsewhere."""

    name: str = field(kw_only=False)
    where: str = text("the name {name}")
    problem: str = text(
        "it can't be part of a path: it is not 1 to 128 ASCII letters, digits, '.', '_' and '-'. statestore writes no "
        "such name: find out who changed the file that contains it, and restore that file"
    )


class DurableFileMissingError(RecoveryError):
    """A file that a committed version needs is not there."""

    needed_by: str
    problem: str = text(
        "is missing, and {needed_by} needs it. Bring it back from a backup of the state location, or restart from a "
        "copy of the Spark checkpoint that does not need it; the query changed nothing"
    )


class DurableFileCorruptedError(RecoveryError):
    """A durable file does not have the size or checksum that was recorded when it was written."""

    cause: str
    problem: str = text(
        "{cause}. It was changed after it was written: bring it back from a backup of the state location; the query "
        "changed nothing"
    )


class SnapshotFormatError(RecoveryError):
    """A snapshot was written by a newer release."""

    found: int
    known: int
    problem: str = text(
        "is a snapshot of format {found}, this release knows {known}: start the query with the release of "
        "statestore that wrote it, or a later one; nothing was changed"
    )


class CommitPointerError(RecoveryError):
    """The commit pointer in Spark's state can't be read. `field` is the one that is wrong, None if it is not one."""

    field: str | None = None


class UnreadableCommitError(RecoveryError):
    """The next batch could not read what this one would have committed. Nothing was committed."""

    shard: int
    version: int
    field: str | None
    cause: str
    where: str = text("shard {shard}")
    problem: str = text(
        "version {version} was not committed: its commit pointer could not be read back ({cause}). Find out where a "
        "time, a count or a name like this comes from: a timestamp, schedule() or the call of commit()"
    )
