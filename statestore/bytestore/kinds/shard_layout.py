"""Names inside a shard's local RocksDB database. The one owner of them.

One database holds all stores of a shard, so that one write batch changes them together:

    STORE:FAMILY               the entries of one store in one format

`:` can't occur in a store name. FAMILY is the name that Kafka Streams gives the column family of that format, so a
family says what its bytes are. Keys of segmented stores stand behind their segment's id (see `segments`). The layout
of Kafka Streams itself (a database per store or segment) is another module's.
"""

from __future__ import annotations

from statestore.bytestore.kinds.families import FAMILIES
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.values.store_format import StoreFormat


def column_family(spec: StoreSpec, store_format: StoreFormat | None = None) -> str:
    """Return the name of the column family that holds the entries of `spec`, in another format if one is given."""
    return f"{spec.name}:{FAMILIES[spec.kind][spec.format if store_format is None else store_format]}"


def split_column_family(name: str) -> tuple[str, str]:
    """Return store and FAMILY of a column family that is named as above; FAMILY is empty if it is not."""
    store, _, family = name.partition(":")
    return store, family
