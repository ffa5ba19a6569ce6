"""Errors of making a state in a new location, of the data source, and of state directories."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text
from statestore.errors.run import InputError
from statestore.errors.state import RecoveryError


class NewStateError(StateStoreError):
    """A state can't be made in a new location; what it was to be made from was not changed."""


class TargetNotEmptyError(NewStateError):
    """The new location holds something already; nothing was changed."""

    location: str = field(kw_only=False)
    found: str
    message: str = text(
        "state location {location} holds {found}: a new state gets a location of its own. Give an empty one"
    )


class TooManyShardsError(NewStateError):
    """A new state was to have more shards than any state may have."""

    shards: int
    limit: int
    message: str = text("a state with {shards:,} shards can't be made: {limit:,} are the most. Say a smaller number")


class StatePointersError(NewStateError):
    """The commit pointers given are not those of the state's shards; `problem` says which is wrong."""

    location: str = field(kw_only=False)
    problem: str
    message: str = text("state location {location}: {problem}")


class KeyPlacementError(NewStateError):
    """An entry does not belong to the shard that it was found in, by the record key it is taken to have.

    `key` is the store's key as hex, `expected_shard` where its record key would be placed.
    """

    store: str = field(kw_only=False)
    key: str
    shard: int
    expected_shard: int
    message: str = text(
        "store {store!r}: the entry with key 0x{key} stands in shard {shard}, but what is taken for the key of "
        "its records belongs to shard {expected_shard}: the store's keys are not the keys of records. Say what "
        "they are with key_of, a function from a key of {store!r} to the record's key. No state was made"
    )


class UnknownRecordKeyError(NewStateError):
    """Nothing says which record keys the entries of `store` belong to."""

    store: str = field(kw_only=False)
    problem: str
    message: str = text("store {store!r}: {problem}. No state was made")


class StateCheckError(NewStateError):
    """The new state lacks entries of the old one, or has others: `expected` and `found` count those of `store`."""

    store: str = field(kw_only=False)
    shard: int
    expected: str
    found: str
    message: str = text(
        "store {store!r}, shard {shard}: expected were {expected}, found were {found}. No state was made. If two old "
        "shards have entries with the same key, one shard can't hold both"
    )


class DataSourceOptionError(StateStoreError):
    """An option of the data source is missing, or has an illegal value."""

    option: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("option {option!r} of the data source headerstate {problem}")


class DataFrameReusedError(DataSourceOptionError):
    """A DataFrame that pushes filters down was used with other filters before, and Spark would mix them up."""

    before: str
    now: str
    option: str = text("pushFilters")
    problem: str = text(
        "was used with the filters {before} before, now with {now}: Spark keeps one read function for both, and would "
        "give rows of the one to the other. Call load() once for each filter, or leave out this option"
    )


class ChangesUnavailableError(RecoveryError):
    """The changes of a shard between two batches are not all there; `where` is the state location."""

    shard: int
    cause: str
    problem: str = text("the changes of shard {shard} can't be read: {cause}")


class ShardOverlapError(NewStateError):
    """Several tasks wrote to the same shard: its entries would be mixed up."""

    location: str = field(kw_only=False)
    shards: list[int]
    message: str = text(
        "state location {location}: several partitions of the DataFrame have rows of the shards {shards}, and one task "
        "must write all of a shard. Use write_initial_state(), or write one partition: coalesce(1). No state was made"
    )


class StateRowError(InputError):
    """A row can't be an entry of the store that it is meant for; `key_digest` is as in RecordError."""

    store: str = field(kw_only=False)
    column: str
    key_digest: str
    problem: str
    message: str = text("store {store!r}: {_row} {problem} (column {column!r}). No state was made")

    @property
    def _row(self) -> str:
        if self.key_digest == "null":
            return "a row without a key"
        return f"the row with the key of digest {self.key_digest}"


class StateDirectoryError(StateStoreError):
    """The directory or location at `path` can't be read or changed as asked; it was left as it was."""

    path: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{path} {problem}")


class DirectoryInUseError(StateDirectoryError):
    """A running application, or another command, holds `lock`, a file at `path`."""

    lock: str
    problem: str = text(
        "is in use: an application or command that runs holds {lock}. Stop it, or wait, and run this again"
    )


class DirectoryDamagedError(StateDirectoryError):
    """Files at `path` are missing, cut or damaged, as `cause` says."""

    cause: str
    problem: str = text(
        "is damaged, or was copied while it was in use, or in part ({cause}). Copy all of it again while nothing "
        "runs on it; or have the store restored from its changelog"
    )


class DirectoryNotAccessibleError(StateDirectoryError):
    """The operating system refuses access to something at `path`, or has no room for it."""

    cause: str
    remedy: str = "Run this as the user that the application runs as"
    problem: str = text("can't be accessed ({cause}). {remedy}")
