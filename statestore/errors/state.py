"""Errors of stores, durable locations and recovery."""

from __future__ import annotations

from statestore.errors.root import StateStoreError


class StoreError(StateStoreError):
    """A store can't do what it was asked; `store` is its name."""

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"store {store!r}: {problem}")
        self.store = store
        self.problem = problem


class StoreClosedError(StoreError):
    """The store was used after it was closed."""

    def __init__(self, store: str) -> None:
        super().__init__(store, "is closed; keep no store or iterator beyond the call that handed it out")


class StoreFormatError(StoreError):
    """The recorded format of a store is not the one asked for; nothing was changed."""

    def __init__(self, store: str, *, recorded: str, asked: str, where: str, remedy: str) -> None:
        super().__init__(store, f"is recorded as {recorded} in {where}, but was asked for as {asked}. {remedy}")
        self.recorded = recorded
        self.asked = asked
        self.where = where


class UnknownColumnFamilyError(StoreError):
    """The database at `path` has column families that no store of this kind has; nothing was changed."""

    def __init__(self, store: str, *, path: str, asked: str, unknown: list[str], known: list[str]) -> None:
        super().__init__(
            store,
            f"the database {path} has the column families {unknown}, and a {asked}, has none but {known}. Open it as "
            "the kind of store that it was made by, with the release that made it, or delete the local state and "
            "restore the store from its changelog",
        )
        self.path = path
        self.asked = asked
        self.unknown = unknown
        self.known = known


class UnknownEntryError(StoreError):
    """`path` stands among the segments of the store, and is not one of them; nothing was changed."""

    def __init__(self, store: str, *, path: str, problem: str) -> None:
        super().__init__(
            store,
            f"{path} {problem}, and nothing else may be there: Kafka Streams would not open the store either. Move it "
            "away, or open the store with the segment interval that it was made with",
        )
        self.path = path


class LocalStateLockedError(StoreError):
    """Another process holds the local database at `path` open."""

    def __init__(self, store: str, *, path: str) -> None:
        super().__init__(store, f"local database {path} is open in another process")
        self.path = path


class LocalStateCorruptedError(StoreError):
    """RocksDB found damage in the local database at `path`; the durable location is not touched by it."""

    def __init__(self, store: str, *, path: str, cause: str) -> None:
        super().__init__(
            store,
            f"local database {path} is damaged ({cause}). A shard's copy was discarded, and is rebuilt from the "
            "durable location when the batch runs again; a store of Kafka Streams is to be deleted, and restored from "
            "its changelog. If this comes back, check the disk",
        )
        self.path = path
        self.cause = cause


class LocationError(StateStoreError):
    """The durable location can't be used."""

    def __init__(self, location: str, problem: str) -> None:
        super().__init__(f"state location {location}: {problem}")
        self.location = location
        self.problem = problem


class LocationNotWritableError(LocationError):
    """The durable location refuses a write."""

    def __init__(self, location: str, *, cause: str) -> None:
        super().__init__(
            location,
            f"can't be written ({cause}). Give a state_location that the driver and every executor can write to",
        )
        self.cause = cause


class LocationInUseError(LocationError):
    """The durable location belongs to another query."""

    def __init__(self, location: str, *, owner: str, query: str) -> None:
        super().__init__(
            location,
            f"belongs to the streaming query {owner}, this is query {query}; nothing was written. Give each query a "
            "state_location of its own. If the checkpoint of the owning query is gone for good, its state can no "
            "longer be continued: use a new state_location",
        )
        self.owner = owner
        self.query = query


class LocationMismatchError(LocationError):
    """The Spark checkpoint points at state that was written to another location."""

    def __init__(self, location: str, *, recorded: str, found: str) -> None:
        super().__init__(
            location,
            f"holds state {found}, but the Spark checkpoint was made with state {recorded}. Start the query with the "
            "state_location it had before, or with a new checkpoint and a new state_location",
        )
        self.recorded = recorded
        self.found = found


class RecoveryError(StateStoreError):
    """Committed state can't be read back; `where` is the file."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class DurableFileMissingError(RecoveryError):
    """A file that a committed version needs is not there."""

    def __init__(self, where: str, *, needed_by: str) -> None:
        super().__init__(
            where,
            f"is missing, and {needed_by} needs it. Bring it back from a backup of the state location, or restart "
            "from a copy of the Spark checkpoint that does not need it; the query changed nothing",
        )
        self.needed_by = needed_by


class DurableFileCorruptedError(RecoveryError):
    """A durable file does not have the size or checksum that was recorded when it was written."""

    def __init__(self, where: str, *, problem: str) -> None:
        super().__init__(
            where,
            f"{problem}. It was changed after it was written: bring it back from a backup of the state location; the "
            "query changed nothing",
        )


class CommitPointerError(RecoveryError):
    """The commit pointer in Spark's state can't be read."""
