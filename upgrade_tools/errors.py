"""Errors that only the tools raise: they name options of the command line. All are below `StateStoreError`."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.errors import LocationError, StateDirectoryError, StateStoreError
from statestore.errors.root import field, text


class UnknownLayoutError(StateDirectoryError):
    """There is no state at `path` that the tools can read; `found` says what is there."""

    found: str
    problem: str = text(
        "has no state that the tools can read; found: {found}. Name a task directory of Kafka Streams "
        "(STATE_DIR/APPLICATION_ID/0_0), an application's directory with task directories, a shard's local copy "
        "(LOCAL_DIR/STATE_ID/shard-0000/copy-0), or a state location"
    )


class StoreNotFoundError(StateDirectoryError):
    """There is no such store at `path`, or there are several and none was named; `known` are the stores there."""

    store: str | None
    known: Sequence[str]
    problem: str = text("has {_asked}")

    @property
    def _asked(self) -> str:
        if not self.known:
            return "no stores"
        asked = "several stores" if self.store is None else f"no store {self.store!r}"
        return f"{asked}: name one of {sorted(self.known)} with --store"


class NothingExpiresError(StateDirectoryError):
    """Nothing says when entries of `store` expire: the store `beside`, which would, does not exist."""

    store: str
    beside: str
    problem: str = text(
        "has no store {beside!r}, so the entries of {store!r} have neither a time to live nor an expiry header. Leave "
        "out --live-at"
    )


class UnknownKindError(StateDirectoryError):
    """The files at `path` do not say something that is needed to read them; `remedy` names the option that does."""

    problem: str
    remedy: str
    message: str = text("{path} does not say {problem}: {remedy}")


class StoreUndecodableError(StateDirectoryError):
    """An entry at `path` can't be decoded; `stores` are the stores that were read, each with the kind used for it."""

    stores: Sequence[str]
    cause: str
    problem: str = text(
        "has an entry that can't be decoded when reading {_listed} ({cause}). If a store is of another kind, give that "
        "with --kind; if it is of EmitStrategy.onWindowClose, only its changelog can be read; else it is damaged, and "
        "verify lists all damage"
    )

    @property
    def _listed(self) -> str:
        return ", ".join(self.stores)


class MigrationRefusedError(StateDirectoryError):
    """The migration is not possible, or its target is taken; `remedy` says what to run instead."""

    problem: str
    remedy: str
    message: str = text("{path} {problem}: {remedy}")


class MigrationCheckError(StateDirectoryError):
    """What was written of `database` differs from its source, and is thrown away."""

    database: str
    problem: str
    message: str = text(
        "{path} can't be migrated: what was written of {database} differs from its source when read back ({problem}). "
        "The source was not changed. Check the disk and the memory for faults, and run this again"
    )


class NoRoomError(StateDirectoryError):
    """The disk of `path` has too little room for a tool; `needed_bytes` of None means more than was free."""

    needed_bytes: int | None
    free_bytes: int
    problem: str = text(
        "has no room: {_needed} are needed, and {free_bytes:,} are free. Make room and run this again, or name a "
        "target on another disk"
    )

    @property
    def _needed(self) -> str:
        return "more bytes" if self.needed_bytes is None else f"about {self.needed_bytes:,} bytes"


class PointersOutdatedError(LocationError):
    """Commit pointers are older than what later runs made of the state; nothing of the shard was removed."""

    shard: int
    version: int
    cause: str
    problem: str = text(
        "the pointer of shard {shard}, at version {version}, is outdated: {cause}. Nothing of the shard was removed. "
        "After the query's next batch, get the pointers again from the Spark checkpoint that it uses now"
    )


class StateWentOnError(LocationError):
    """A shard can't be read at `version` any more: the query has gone on to `newest`, and collected garbage."""

    shard: int
    version: int
    newest: int
    file: str
    problem: str = text(
        "shard {shard} can't be read at version {version}: {file} was removed, as the query has gone on to version "
        "{newest}. Run this again; if it takes longer than the query retains versions (retained_versions), stop the "
        "query meanwhile, or read a copy of the location"
    )


class RowFileError(StateStoreError):
    """The file of rows at `path` can't be read; nothing was made of it."""

    path: str = field(kw_only=False)
    problem: str
    message: str = text("{path} can't be imported: {problem}. No state was made")


class RowFileExistsError(StateStoreError):
    """There is something already at `path`, where a file was to be written; it was not changed."""

    path: str = field(kw_only=False)
    message: str = text("{path} exists already. Name a new file, or delete that one, and run this again")


class ChangelogError(StateStoreError):
    """Changelog topics of Kafka Streams can't be read or written as asked; what was refused was not changed.

    `what` is the topic, a partition of it, or the consumer group.
    """

    what: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{what}: {problem}")


class KafkaUnavailableError(ChangelogError):
    """No broker answers at `what`, or the one that does refuses what was asked."""

    cause: str
    problem: str = text(
        "{cause}. Check the address and that a broker runs there. If its listeners need more, such as SASL, name a "
        "file of client properties with --client-config"
    )


class ApplicationRunningError(ChangelogError):
    """The application still has members in its consumer group, so its state could change meanwhile."""

    state: str
    problem: str = text(
        "the application runs, or has just stopped: its consumer group is {state}. Stop all of its instances, wait for "
        "its session.timeout.ms (45 s if nothing is set), after which the group is empty, and run this again"
    )


class ChangelogMissingError(ChangelogError):
    """There is no such topic; `known` are the changelog topics of the cluster."""

    known: list[str]
    problem: str = text(
        "there is no such topic. {_there}: the name is APPLICATION_ID-STORE-changelog, so check --application-id, "
        "and --store or --program"
    )

    @property
    def _there(self) -> str:
        return f"There are {', '.join(sorted(self.known))}" if self.known else "There is no changelog topic at all"


class ChangelogDamagedError(ChangelogError):
    """A log lacks records that a store needs, or has records that no such store writes; nothing was made."""


class GroupOffsetsError(ChangelogError):
    """Offsets can't be read from, or set for, the application's consumer group; none was set."""

    message: str = text("offsets of the consumer group {what}: {problem}. None was set")
