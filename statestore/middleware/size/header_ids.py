"""Header ids: who owns which numbers. `compact_headers` writes the headers of a record under them.

Ids are signed 32-bit integers, divided as IPv4 addresses are:

    0                            nobody's: for formats that need a number of their own
    1 to 2^31 - 1                public: a registrar allots ranges of it to owners
    -2^31 to -1                  private, as 192.168.* is: for use inside one house, allotted to nobody

Small ids take few bytes: -64 to 63 one, those beyond +-8,191 three or more. Two vendors who don't know each other ship
a registry each, with their own range; `merged` joins them. Source: the architecture of metadata that KIP-82 refers to.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from statestore.errors import FormatError
from statestore.errors.middleware import HeaderRangeError
from statestore.format.json_fields import MALFORMED, distinct
from statestore.format.varint import INT32_MAX, INT32_MIN
from statestore.kip82.id_headers import HeaderIds

__all__ = ["HeaderRegistry"]

_FORMAT: Final = 1
_MAX_BYTES: Final = 16 << 20
_MAX_RANGES, _MAX_IDS, _MAX_NAME = 10_000, 100_000, 1_000


class IdRange(NamedTuple):
    """Header ids from `first` to `last`, both inclusive."""

    first: int
    last: int

    def __contains__(self, header_id: object) -> bool:
        """Return whether an id lies in it."""
        return isinstance(header_id, int) and self.first <= header_id <= self.last

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


PUBLIC_IDS: Final = IdRange(1, INT32_MAX)
"""What a registrar allots ranges of."""
PRIVATE_IDS: Final = IdRange(INT32_MIN, -1)
"""What anybody may use inside of their own house, and must not ship."""


class HeaderRegistry(HeaderIds):
    """Which id stands for which header, and whose ranges of ids there are. Never changed: `with_` makes another one.

    It is a HeaderIds: what writes and reads headers by ids takes it as it is.
    """

    def __init__(self, ranges: Mapping[IdRange, str] | None = None, ids: Mapping[str, int] | None = None) -> None:
        """Make a registry of ranges with their owners, and of ids by header name.

        Raises HeaderRangeError for ranges that overlap or are not public, for an id that lies in no range, or belongs
        to two names; ValueError for an id that has no 32 bits, and for names that are empty or longer than 1,000
        characters; TypeError for one that is not a str.
        """
        self.ranges: Final[Mapping[IdRange, str]] = {
            IdRange(*span): _name("an owner", owner) for span, owner in sorted((ranges or {}).items())
        }
        """The owner of each range, in the order of ids."""
        self.ids: Final[Mapping[str, int]] = {_name("a header", name): each for name, each in (ids or {}).items()}
        """The id of each header."""
        _check_ranges(self.ranges)
        self._starts = [span.first for span in self.ranges]
        names: dict[int, str] = {}
        for name, header_id in self.ids.items():
            if (other := names.setdefault(header_id, name)) != name:
                raise HeaderRangeError(f"headers {other!r} and {name!r} have the same id {header_id}")
            if header_id not in PRIVATE_IDS and self.owner_of(header_id) is None:
                raise HeaderRangeError(f"header {name!r} has the id {header_id}, which no owner's range holds")
        super().__init__(self.ids)

    def with_range(self, owner: str, first: int, last: int) -> HeaderRegistry:
        """Return a registry in which `owner` has the ids from `first` to `last`, too: for the registrar to call.

        Raises what making a registry does.
        """
        span = IdRange(first, last)
        if span in self.ranges:
            raise HeaderRangeError(f"header ids {span} belong to {self.ranges[span]!r}: {owner!r} needs other ones")
        return HeaderRegistry({**self.ranges, span: owner}, self.ids)

    def with_ids(self, owner: str, ids: Mapping[str, int]) -> HeaderRegistry:
        """Return a registry in which an owner's headers have these ids of the owner's ranges, too.

        Raises HeaderRangeError for an id outside of them, for one that another header has, and for a header that has
        another id.
        """
        for name, header_id in ids.items():
            if self.owner_of(header_id) != owner:
                own = ", ".join(str(span) for span, known in self.ranges.items() if known == owner)
                owned = f"{owner!r} owns {own or 'no ids'}"
                raise HeaderRangeError(f"header {name!r} can't have the id {header_id}: {owned}")
        return HeaderRegistry(self.ranges, self._with(ids))

    def with_private_ids(self, ids: Mapping[str, int]) -> HeaderRegistry:
        """Return a registry in which headers have these private ids, too, which nobody owns. Raises as `with_ids`."""
        for name, header_id in ids.items():
            if header_id not in PRIVATE_IDS:
                raise HeaderRangeError(f"header {name!r} can't have the id {header_id}: private are {PRIVATE_IDS}")
        return HeaderRegistry(self.ranges, self._with(ids))

    def merged(self, other: HeaderRegistry) -> HeaderRegistry:
        """Return a registry of both. What both have may be the same; all else must not meet.

        Raises HeaderRangeError for ranges of two owners that overlap, and where a header has two ids, or an id two
        headers: also private ones, as two houses that become one have to agree on those.
        """
        for span, owner in other.ranges.items():
            if self.ranges.get(span, owner) != owner:
                raise HeaderRangeError(f"header ids {span} belong to {self.ranges[span]!r}, and to {owner!r}")
        return HeaderRegistry({**self.ranges, **other.ranges}, self._with(other.ids))

    def owner_of(self, header_id: int) -> str | None:
        """Return whose range an id lies in; None for a private one and for one that is not allotted."""
        place = bisect_right(self._starts, header_id) - 1
        span, owner = list(self.ranges.items())[place] if place >= 0 else (PRIVATE_IDS, None)
        return owner if header_id in span else None

    def to_json(self) -> str:
        """Return the registry as JSON: its ranges in the order of ids, its headers in that of names."""
        ranges = [{"owner": owner, "first": span.first, "last": span.last} for span, owner in self.ranges.items()]
        return json.dumps({"format": _FORMAT, "ranges": ranges, "ids": dict(sorted(self.ids.items()))}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> HeaderRegistry:
        """Return the registry in JSON.

        Raises FormatError for anything else, larger than 16 MiB, with more than 10,000 ranges or 100,000 headers, a
        name twice or an unknown field; and what making a registry raises.
        """
        try:
            document = json.loads(text, object_pairs_hook=distinct)
            if document.keys() != {"format", "ranges", "ids"} or document["format"] != _FORMAT:
                raise ValueError(f"its fields are not those of format {_FORMAT}")
            ranges = [_range(given) for given in document["ranges"]]
            ids = {name: _number(header_id) for name, header_id in document["ids"].items()}
            if len(ranges) > _MAX_RANGES or len(ids) > _MAX_IDS or len(text) > _MAX_BYTES:
                raise ValueError(f"it has {len(ranges)} ranges and {len(ids)} headers")
            if len({span for span, _ in ranges}) < len(ranges):
                raise ValueError("it has a range twice")
            return cls(dict(ranges), ids)
        except MALFORMED as cause:
            raise FormatError("header registry", f"is not one that is known ({cause})") from cause

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> HeaderRegistry:
        """Return the registry in a file of JSON. Raises what `from_json` does, and OSError."""
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise FormatError("header registry", f"{path} is larger than {_MAX_BYTES} bytes")
        try:
            return cls.from_json(content.decode())
        except UnicodeDecodeError as cause:
            raise FormatError("header registry", f"{path} is not text in UTF-8 ({cause})") from cause

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the registry to a file of JSON. Raises OSError."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def _with(self, ids: Mapping[str, int]) -> dict[str, int]:
        for name, header_id in ids.items():
            if self.ids.get(name, header_id) != header_id:
                raise HeaderRangeError(f"header {name!r} has the id {self.ids[name]}, and can't have {header_id}")
        return {**self.ids, **ids}


def _name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} must be a str, got {name!r}")
    if not 0 < len(name) <= _MAX_NAME:
        raise ValueError(f"the name of {what} must have 1 to {_MAX_NAME} characters, got {len(name)}")
    return name


def _check_ranges(ranges: Mapping[IdRange, str]) -> None:
    """Raise HeaderRangeError unless the ranges, which are in order, are public and apart."""
    before, other = IdRange(0, 0), ""
    for span, owner in ranges.items():
        if not PUBLIC_IDS.first <= span.first <= span.last <= PUBLIC_IDS.last:
            raise HeaderRangeError(f"{owner!r} can't own the header ids {span}: public are {PUBLIC_IDS}")
        if span.first <= before.last:
            raise HeaderRangeError(f"header ids {span} of {owner!r} overlap {before} of {other!r}")
        before, other = span, owner


def _range(given: Any) -> tuple[IdRange, str]:
    if given.keys() != {"owner", "first", "last"}:
        raise ValueError(f"a range has an owner, a first and a last id, not {sorted(given)}")
    return IdRange(_number(given["first"]), _number(given["last"])), given["owner"]


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"a header id is a whole number, not {value!r}")
    return value
