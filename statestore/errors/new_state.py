"""Errors of making a state in a new location: from another state, from files, from a topic."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text


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
    """It can't be told which record keys the entries of `store` belong to."""

    store: str = field(kw_only=False)
    problem: str
    message: str = text("store {store!r}: {problem}. No state was made")


class StateCheckError(NewStateError):
    """What was written is not what there was: `expected` and `found` say how many entries of `store` there are."""

    store: str = field(kw_only=False)
    shard: int
    expected: str
    found: str
    message: str = text(
        "store {store!r}, shard {shard}: expected were {expected}, found were {found}. No state was made. If "
        "there are two entries with the same key, as in two old shards, one shard can't hold both"
    )
