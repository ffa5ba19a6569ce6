"""The databases of a state as they lie on the disk: column families, with the bytes in them as they are.

For who looks at a state before it is known what its stores are, or does not trust what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from statestore.bytestore.protocol import ByteStore


@dataclass(frozen=True)
class OpenFamilies:
    """A database that is open: what is written to it is lost."""

    families: Mapping[str, Mapping[str, ByteStore]]
    """Of each store, its column families by Kafka Streams' names."""
    offsets: ByteStore | None = None
    """The family of Kafka Streams that says what the store has taken in."""


@dataclass(frozen=True)
class Database:
    """A database of one part: of one store or segment in Kafka Streams' layout, of all stores in ours."""

    name: str
    """Where it is: a path below the state's, or what else people know it by."""
    open: Callable[[], AbstractContextManager[OpenFamilies]]
    """Opens it through a view. Raises StateDirectoryError, RecoveryError."""
    store: str | None = None
    """Whose it is; None if it has all stores."""
    segment_start_ms: int | None = None
    """When the segment begins that it is; None if it is not one, and its keys begin with their segment's id then."""
    tables: list[Path] = field(default_factory=list)
    """The table files in its directory."""
