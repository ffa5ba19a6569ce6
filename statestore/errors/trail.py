"""Errors of routing trails."""

from __future__ import annotations

from statestore.errors.middleware import RecordRefusedError
from statestore.errors.root import text


class TrailRefusedError(RecordRefusedError):
    """A record's trail is not one that was written by us, or was changed."""

    header: str
    reason: str
    problem: str = text("the trail in header {header!r} can't be read: {reason}. Who wrote the record has to mend it")
