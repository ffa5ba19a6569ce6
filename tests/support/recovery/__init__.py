"""Shards without Spark, and locations that behave as others do."""

from statestore.recovery.location.durable_location import DurableLocation

MAX_BYTES = 1 << 30
"""More than any file has that a test reads."""


def content(location: DurableLocation, name: str) -> bytes | None:
    data = location.read(name, MAX_BYTES)
    return None if data is None else data.to_pybytes()
