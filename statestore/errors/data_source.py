"""Errors of the Spark data source: of its options, its change feed, and the rows that a new state is made of."""

from __future__ import annotations

from statestore.errors.new_state import NewStateError
from statestore.errors.root import StateStoreError, field, text
from statestore.errors.run import InputError
from statestore.errors.state import RecoveryError


class DataSourceOptionError(StateStoreError):
    """An option of the data source is missing, or has a value that it can't have."""

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
    """Several tasks wrote to the same shard, whose entries would be mixed up."""

    location: str = field(kw_only=False)
    shards: list[int]
    message: str = text(
        "state location {location}: several partitions of the DataFrame have rows of the shards {shards}, and "
        "each shard must be written by one task. Use write_initial_state(), which sees to that, or write one "
        "partition: df.coalesce(1). No state was made"
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
        return (
            "a row without a key" if self.key_digest == "null" else f"the row with the key of digest {self.key_digest}"
        )
