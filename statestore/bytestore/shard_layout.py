"""Names inside a shard's local RocksDB database. The one owner of them.

One database holds all stores of a shard, so that one write batch changes them together:

    STORE:FAMILY               the entries of one store in one format

`:` can't occur in a store name. FAMILY is the name that Kafka Streams gives the column family of that format, so a
family says what its bytes are. Kafka Streams' own layout (a database per store) is another module's.
"""

from __future__ import annotations

from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.format.store_format import StoreFormat

_FAMILIES = {
    (StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS): "keyValueWithTimestampAndHeaders",
}


def column_family(spec: StoreSpec) -> str:
    """Return the name of the column family that holds the entries of `spec`."""
    return f"{spec.name}:{_FAMILIES[spec.kind, spec.format]}"
