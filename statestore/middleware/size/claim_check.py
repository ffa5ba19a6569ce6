"""Claim checks: large values lie in a durable location, and their records carry what it takes to get them.

    CLAIM_CHECK := "1;size=" bytes ";sha256=" hex ";path=objects/" hex[:2] "/" hex        ASCII, with an empty value
    LOCATION/objects/ab/ab12...    the value, under its SHA-256

The same value is the same object, however often it is written: a batch that is retried leaves nothing behind. An object
is written before its record is sent, and again with each record that carries the claim on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import numpy as np

from statestore.errors.middleware import ClaimError, ClaimMissingError
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.binary_columns import row_sizes
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.middleware.application import Application, has_none, options, value_of
from statestore.recovery.location.durable_location import DurableLocation

__all__ = ["CLAIM_CHECK_HEADER", "ClaimCheck", "delete_objects"]

CLAIM_CHECK_HEADER: Final = "CLAIM_CHECK"
"""The header that says where a value is; it counts only with a value that is empty."""

_OBJECTS: Final = "objects"
_CLAIM: Final = re.compile(rb"1;size=([0-9]{1,10});sha256=([0-9a-f]{64});path=([!-~]{1,1024})")
_OBJECT: Final = re.compile(r"objects/[0-9a-f]{2}/[0-9a-f]{64}")


class _Claim(NamedTuple):
    size_bytes: int
    digest: str

    @property
    def path(self) -> str:
        return f"{_OBJECTS}/{self.digest[:2]}/{self.digest}"

    def to_bytes(self) -> bytes:
        return f"1;size={self.size_bytes};sha256={self.digest};path={self.path}".encode()

    @classmethod
    def of(cls, header: bytes) -> _Claim:
        """Raise ClaimError if the claim is malformed, or its path is not that of its hash."""
        if (found := _CLAIM.fullmatch(header)) is None:
            raise ClaimError(f"its header {CLAIM_CHECK_HEADER} is not a claim of version 1")
        claim = cls(int(found[1]), found[2].decode())
        if claim.path != found[3].decode():
            raise ClaimError(f"its claim names another path than that of its hash, {claim.path}: it is not followed")
        return claim


class ClaimCheck(Application):
    """Checks large values in at a location on their way out, and fetches them on their way in.

    Fetched values are not larger than `max_bytes`, and have the hash that the claim says. A location that can't be
    reached ends the query with its LocationError, as no record is at fault.
    """

    kind = "claim-check"
    _options = options(STRING="location!", INT="threshold.bytes max.bytes", BOOLEAN="lazy")
    marks = (CLAIM_CHECK_HEADER,)
    not_before: ClassVar[Mapping[str, str]] = {
        "schema": "the value is elsewhere by then: give it its schema before it is checked in",
        "compression": "the value is elsewhere by then: compress it before it is checked in",
        "encryption": "objects would lie in the location in clear: encrypt before you check in",
    }

    def __init__(
        self,
        location: str | Path | DurableLocation,
        *,
        threshold_bytes: int = 900_000,
        max_bytes: int = 256 << 20,
        lazy: bool = False,
    ) -> None:
        """Say where values lie.

        Args:
            location: a path or URI that pyarrow.fs knows, which all that write and read the topic can reach.
            threshold_bytes: values of more bytes are checked in.
            max_bytes: larger values are refused, on either side.
            lazy: whether values are left where they are: user code sees an empty one, and gets it with `fetch`. A
                record that it forwards with that header and an empty value takes the claim along, and has its object
                written anew.

        Raises ValueError for sizes that can't be.
        """
        if not 0 <= threshold_bytes <= max_bytes < 2**31:
            raise ValueError(
                f"0 <= threshold_bytes <= max_bytes < 2^31 must hold, got {threshold_bytes} and {max_bytes}"
            )
        self.location: Final = DurableLocation.of(location)
        self._threshold_bytes: Final = threshold_bytes
        self._max_bytes: Final = max_bytes
        self._lazy: Final = lazy
        if lazy:
            self.changes = (CLAIM_CHECK_HEADER,)

    def fetch(self, headers: Headers) -> bytes:
        """Return the value that the claim in a record's headers stands for.

        Raises ClaimError if there is no claim, it is malformed, or its object is too large or not what was checked in;
        ClaimMissingError if there is no object; and LocationError.
        """
        if (claim := _claim_in(headers)) is None:
            raise ClaimError(f"it has no header {CLAIM_CHECK_HEADER}")
        return self._fetched(claim)

    def _check_size(self, found: int) -> None:
        if found > self._max_bytes:
            raise ClaimError(
                f"its value has {found} bytes, {self._max_bytes} are allowed: raise max_bytes of ClaimCheck"
            )

    def _fetched(self, claim: _Claim) -> bytes:
        self._check_size(claim.size_bytes)
        try:
            found = self.location.read(claim.path, claim.size_bytes)
        except DurableFileCorruptedError as longer:
            raise _another(claim) from longer
        if found is None:
            raise ClaimMissingError(path=claim.path, location=str(self.location))
        value: bytes = found.to_pybytes()
        if (len(value), sha256(value).hexdigest()) != claim:
            raise _another(claim)
        return value

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Check a large value in, or write the object of a claim anew if an empty value carries the claim on.

        Raises ClaimError for a value that is too large, what `fetch` raises for a claim, and LocationNotWritableError.
        """
        if (value := record.value) is None:
            return (record,)
        if value:
            record.headers.remove(CLAIM_CHECK_HEADER)  # of an earlier value
        elif claim := _claim_in(record.headers):
            self.location.write(claim.path, self._fetched(claim))
        if len(value) <= self._threshold_bytes:
            return (record,)
        self._check_size(len(value))
        claim = _Claim(len(value), sha256(value).hexdigest())
        self.location.write(claim.path, value)
        made = record.copy(value=b"")
        made.headers.add(CLAIM_CHECK_HEADER, claim.to_bytes())
        return (made,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Pass records on if none has a large value or a claim; else they go one by one."""
        are_small = np.max(row_sizes(records.value), initial=0) <= self._threshold_bytes
        return records if are_small and has_none(records, CLAIM_CHECK_HEADER) else None

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Fetch the value of a record that has a claim. Raises what `fetch` raises."""
        claim = None if record.value != b"" or self._lazy else _claim_in(record.headers)
        if claim is None:
            return (record,)
        value = self._fetched(claim)
        return (record.copy(value=value, headers=record.headers.copy().remove(CLAIM_CHECK_HEADER)),)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Pass records on if none has a claim; else they go one by one."""
        return records if self._lazy or has_none(records, CLAIM_CHECK_HEADER) else None

    def __repr__(self) -> str:
        return f"ClaimCheck({str(self.location)!r})"


def delete_objects(location: str | Path | DurableLocation, before_ms: int, *, live: Iterable[bytes]) -> int:
    """Delete the objects that were last written before a time, in milliseconds since the epoch, and are not `live`.

    It knows neither topics nor states. Gather as `live` the claims that state holds, as bytes of the header. Take a
    `before_ms` before the oldest record that topics had then; or gather the claims of topics, too. Other files are left
    alone. Returns how many were deleted. Raises LocationError, and ClaimError for what is not a claim, before any is
    deleted.
    """
    kept = {_Claim.of(claim).path for claim in live}
    opened = DurableLocation.of(location)
    deleted = 0
    for directory in opened.directories(_OBJECTS):
        for entry in opened.entries(directory):
            is_old = entry.modified_ms is not None and entry.modified_ms < before_ms
            if is_old and _OBJECT.fullmatch(entry.name) and entry.name not in kept:
                opened.delete(entry.name)
                deleted += 1
    return deleted


def _another(claim: _Claim) -> ClaimError:
    return ClaimError(f"object {claim.path} is not what was checked in: its size or its hash differs")


def _claim_in(headers: Headers) -> _Claim | None:
    value = value_of(headers, CLAIM_CHECK_HEADER)
    return None if value is None else _Claim.of(value)
