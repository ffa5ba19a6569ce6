"""Change: what flows between the nodes of tables. Source: Kafka Streams' internals.Change."""

from __future__ import annotations

from typing import Any, NamedTuple


class Change(NamedTuple):
    """What became of a key of a table."""

    new: Any
    """None if the key is gone."""
    old: Any = None
    """None if the key was not there, or if nobody below asked for old values."""
    is_latest: bool = True
    """Whether no version of the key is later; false only where a versioned table got a record out of order."""
