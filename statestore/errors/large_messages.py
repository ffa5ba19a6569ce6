"""Errors of values that are too large for one record: in slices, or elsewhere under a claim."""

from __future__ import annotations

from statestore.errors.middleware import RecordRefusedError
from statestore.errors.root import text


class SliceError(RecordRefusedError):
    """A record can't be cut, or a slice can't be put together with the others of its message."""


class SlicesIncompleteError(SliceError):
    """Slices of a message were given up: some never came. The record that is refused is the first of those that did."""

    message_id: str
    """As hex."""
    count: int
    missing: str
    """The indexes of the slices that did not come, from 0 on, as in `1, 3-7`."""
    cause: str
    problem: str = text(
        "slices {missing} of {count} of message {message_id} are missing, and it is given up: {cause}. Send the whole "
        "message again"
    )


class ClaimError(RecordRefusedError):
    """A claim can't be honoured: it is malformed, or what it stands for is not what was checked in."""


class ClaimMissingError(ClaimError):
    """There is nothing under a claim; the object was deleted, or never there."""

    path: str
    location: str
    problem: str = text(
        "there is no object {path} at {location}: it was deleted, or the record is from another location. Keep objects "
        "for longer than the topic keeps records"
    )
