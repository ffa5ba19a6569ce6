"""Errors of making a state in a new location: from another state, from files, from a topic."""

from __future__ import annotations

from statestore.errors.root import StateStoreError


class NewStateError(StateStoreError):
    """A state can't be made in a new location; what it was to be made from was not changed."""


class TargetNotEmptyError(NewStateError):
    """The new location holds something already; nothing was changed."""

    def __init__(self, location: str, *, found: str) -> None:
        super().__init__(
            f"state location {location} holds {found}: a new state gets a location of its own. Give an empty one"
        )
        self.location = location
        self.found = found


class TooManyShardsError(NewStateError):
    """A new state was to have more shards than any state may have."""

    def __init__(self, *, shards: int, limit: int) -> None:
        super().__init__(f"a state with {shards:,} shards can't be made: {limit:,} are the most. Say a smaller number")
        self.shards = shards
        self.limit = limit


class StatePointersError(NewStateError):
    """The commit pointers given are not those of the state's shards; `problem` says which is wrong."""

    def __init__(self, location: str, *, problem: str) -> None:
        super().__init__(f"state location {location}: {problem}")
        self.location = location
        self.problem = problem


class KeyPlacementError(NewStateError):
    """An entry does not belong to the shard that it was found in, by the record key it is taken to have.

    `key` is the store's key as hex, `expected_shard` where its record key would be placed.
    """

    def __init__(self, store: str, *, key: str, shard: int, expected_shard: int) -> None:
        super().__init__(
            f"store {store!r}: the entry with key 0x{key} stands in shard {shard}, but what is taken for the key of "
            f"its records belongs to shard {expected_shard}: the store's keys are not the keys of records. Say what "
            f"they are with key_of, a function from a key of {store!r} to the record's key. No state was made"
        )
        self.store = store
        self.key = key
        self.shard = shard
        self.expected_shard = expected_shard


class UnknownRecordKeyError(NewStateError):
    """It can't be told which record keys the entries of `store` belong to."""

    def __init__(self, store: str, *, problem: str) -> None:
        super().__init__(f"store {store!r}: {problem}. No state was made")
        self.store = store
        self.problem = problem


class StateCheckError(NewStateError):
    """What was written is not what there was: `expected` and `found` say how many entries of `store` there are."""

    def __init__(self, store: str, *, shard: int, expected: str, found: str) -> None:
        super().__init__(
            f"store {store!r}, shard {shard}: expected were {expected}, found were {found}. No state was made. If "
            "there are two entries with the same key, as in two old shards, one shard can't hold both"
        )
        self.store = store
        self.shard = shard
        self.expected = expected
        self.found = found
