"""Shards without Spark, and locations that behave as others do."""

from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, StateMetadata
from statestore.recovery.shard_batch import ShardedState

MAX_BYTES = 1 << 30
"""More than any file has that a test reads."""


def content(location: DurableLocation, name: str) -> bytes | None:
    data = location.read(name, MAX_BYTES)
    return None if data is None else data.to_pybytes()


def on_record(state: ShardedState) -> ShardedState:
    """Return a state that is recorded in its location, as a driver does it before tasks run."""
    if state.location.read(METADATA_NAME, MAX_BYTES) is None:
        metadata = StateMetadata(state.state_id, 1, "key", (0,), state.stores, topology=())
        state.location.write(METADATA_NAME, metadata.to_json().encode())
    return state
