"""Errors that only the tools raise: they name options of the command line. All are of the library's one root."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.errors import LocationError, StateDirectoryError, StateStoreError
from statestore.errors.root import field, text


class UnknownLayoutError(StateDirectoryError):
    """There is no state at `path` that is known; `found` says what is there."""

    found: str
    problem: str = text(
        "holds {found}, which is no state that is known. Name a task directory of Kafka Streams "
        "(STATE_DIR/APPLICATION_ID/0_0), the directory of an application with such ones, a shard's local copy "
        "(LOCAL_DIR/STATE_ID/shard-0000/copy-0), or a state location"
    )


class StoreNotFoundError(StateDirectoryError):
    """There is no such store at `path`, or several and none was named; `known` are those that are there."""

    store: str | None
    known: Sequence[str]
    problem: str = text("has {_asked}: name one of {_listed} with --store")

    @property
    def _asked(self) -> str:
        return "several stores" if self.store is None else f"no store {self.store!r}"

    @property
    def _listed(self) -> list[str]:
        return sorted(self.known)


class NothingExpiresError(StateDirectoryError):
    """Nothing says when entries of `store` expire: `beside` is the store that would, and is not there."""

    store: str
    beside: str
    problem: str = text(
        "has no store {beside!r}: what is in {store!r} has neither a time to live nor an expiry header. Leave out "
        "--live-at"
    )


class UnknownKindError(StateDirectoryError):
    """The files of `path` do not tell what must be known to read them; `remedy` says which option does."""

    problem: str
    remedy: str
    message: str = text("{path} does not tell {problem}: {remedy}")


class StoreUndecodableError(StateDirectoryError):
    """There are entries at `path` that are none of the `stores`, each with the kind that it was read as."""

    stores: Sequence[str]
    cause: str
    problem: str = text(
        "has an entry that is none of {_listed} ({cause}). If a store is of another kind, say it with --kind; if not "
        "it is damaged, and verify names all that is"
    )

    @property
    def _listed(self) -> str:
        return ", ".join(self.stores)


class MigrationRefusedError(StateDirectoryError):
    """What was asked for is no migration, or its target is taken; `remedy` says what to run instead."""

    problem: str
    remedy: str
    message: str = text("{path} {problem}: {remedy}")


class MigrationCheckError(StateDirectoryError):
    """What was written of `database` is not what it was made from; nothing of it counts."""

    database: str
    problem: str
    message: str = text(
        "{path} can't be migrated: what was written of {database} does not read back as what it was made from "
        "({problem}). The source is as it was. Check the disk and its memory, and run this again"
    )


class NoRoomError(StateDirectoryError):
    """There is not the room at `path` that a tool needs; `needed_bytes` of None is more than there was."""

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
    """Commit pointers are not those of the run that went on; nothing of the shard was removed."""

    shard: int
    version: int
    cause: str
    problem: str = text(
        "the pointer of shard {shard}, at version {version}, is not to be judged by: {cause}. Nothing of the shard was "
        "removed. Print the pointers of the Spark checkpoint that the query goes on with, after its next batch"
    )


class RowFileError(StateStoreError):
    """The file of rows at `path` can't be read; nothing was made of it."""

    path: str = field(kw_only=False)
    problem: str
    message: str = text("{path} can't be imported: {problem}. No state was made")


class RowFileExistsError(StateStoreError):
    """There is something at `path`, where a file of rows was to be written; it was left as it was."""

    path: str = field(kw_only=False)
    message: str = text("{path} is there already. Name a new file, or delete that one, and run this again")


class ChangelogError(StateStoreError):
    """Changelog topics of Kafka Streams can't be read or written as asked; of what was refused nothing was changed.

    `what` is the topic, a partition of it, or the consumer group.
    """

    what: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{what}: {problem}")


class KafkaUnavailableError(ChangelogError):
    """No broker answers at `what`, or the one that does refuses what was asked."""

    cause: str
    problem: str = text(
        "{cause}. Check the address and that a broker runs there; what its listeners ask for, such as SASL, goes into "
        "a file of client properties that --client-config names"
    )


class ApplicationRunningError(ChangelogError):
    """Members of the application are still in its consumer group, so its state would change meanwhile."""

    state: str
    problem: str = text(
        "the application runs, or has just stopped: its consumer group is {state}. Stop all of its instances, wait for "
        "its session.timeout.ms (45 s if nothing is set), after which the group is empty, and run this again"
    )


class ChangelogMissingError(ChangelogError):
    """There is no such topic; `known` are the changelog topics that there are."""

    known: list[str]
    problem: str = text(
        "there is no such topic. {_there}: the name is APPLICATION_ID-STORE-changelog, so check --application-id and "
        "--store"
    )

    @property
    def _there(self) -> str:
        return f"There are {', '.join(sorted(self.known))}" if self.known else "There is no changelog topic at all"


class ChangelogDamagedError(ChangelogError):
    """A log has not all that a store must be restored from, or has what no such store has written; nothing was made."""


class GroupOffsetsError(ChangelogError):
    """Offsets can't become those of the application's consumer group; none was set."""

    message: str = text("offsets of the consumer group {what}: {problem}. None was set")
