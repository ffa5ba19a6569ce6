"""Names inside a shard's local RocksDB database. The one owner of them.

One database holds all stores of a shard, so that one write batch changes them together:

    default                    `marker` -> LocalMarker as JSON: which committed version the database holds
    STORE:FAMILY               the entries of one store in one format

`:` can't occur in a store name. FAMILY is the name that Kafka Streams gives the column family of that format, so a
family says what its bytes are. Kafka Streams' own layout (a database per store) is another module's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.errors import FormatError
from statestore.format.store_format import StoreFormat

MARKER_FAMILY = "default"
MARKER_KEY = b"marker"
_MARKER_LIMIT_BYTES = 64 * 1024

_FAMILIES = {
    (StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS): "keyValueWithTimestampAndHeaders",
}


def column_family(spec: StoreSpec) -> str:
    """Return the name of the column family that holds the entries of `spec`."""
    return f"{spec.name}:{_FAMILIES[spec.kind, spec.format]}"


@dataclass(frozen=True)
class LocalMarker:
    """Which committed version a local database holds: that of state `state_id` after the delta `delta`."""

    state_id: str
    shard: int
    version: int
    delta: str

    def to_bytes(self) -> bytes:
        """Return the marker as UTF-8 JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LocalMarker:
        """Return the marker that `to_bytes` gave. Raises FormatError if it is not one."""
        if len(data) > _MARKER_LIMIT_BYTES:
            raise FormatError("local marker", f"{len(data)} bytes are too many")
        try:
            fields = json.loads(data)
            return cls(str(fields["state_id"]), int(fields["shard"]), int(fields["version"]), str(fields["delta"]))
        except (KeyError, ValueError, TypeError) as cause:
            raise FormatError("local marker", f"{data[:200]!r} is not one") from cause
