"""A map that tells its keys apart by type, as Java's maps do: the number 1 and the boolean `true` are two keys."""

from __future__ import annotations

import struct
from collections.abc import Hashable, ItemsView, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from statestore.connect.scalars import Float32, Instant
from statestore.connect.schema import Struct, type_of


class TypedMap(Mapping[Any, Any]):
    """Entries in order, whose keys may be anything, lists and maps too; of two equal keys the last one's value counts.

    Keys are equal if they have one type and are equal in it: `Int8(1)`, `Int16(1)` and `True` differ, as do 0.0 and
    -0.0, and the decimals 1.0 and 1.00.
    """

    __slots__ = ("_entries", "_places")

    def __init__(self, entries: Iterable[tuple[Any, Any]] = ()) -> None:
        found: dict[Hashable, tuple[Any, Any]] = {}
        for key, value in entries:
            found[identity_of(key)] = (key, value)
        self._entries = list(found.values())
        self._places: dict[Hashable, int] | None = None

    @classmethod
    def of_distinct(cls, entries: Iterable[tuple[Any, Any]]) -> TypedMap:
        """Return the map of entries whose keys are known to differ."""
        made = cls()
        made._entries = list(entries)
        return made

    def __getitem__(self, key: Any) -> Any:
        if self._places is None:
            self._places = {identity_of(key): place for place, (key, _) in enumerate(self._entries)}
        place = self._places.get(identity_of(key))
        if place is None:
            raise KeyError(key)
        return self._entries[place][1]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> ItemsView[Any, Any]:
        """Return the entries, in order."""
        return _Entries(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(other) != len(self):
            return False
        same = other if isinstance(other, TypedMap) else TypedMap(other.items())
        return all(key in same and same[key] == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]  # its values may be lists

    def __repr__(self) -> str:
        return f"TypedMap({self._entries!r})"


class _Entries(ItemsView[Any, Any]):
    _mapping: TypedMap

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._mapping._entries)


def map_of_distinct(entries: list[tuple[Any, Any]]) -> Mapping[Any, Any]:
    """Return a dict of entries, or a TypedMap where a dict would take two keys for one, or can't hold one."""
    try:
        plain = dict(entries)
    except TypeError:  # a list or a map for a key
        return TypedMap.of_distinct(entries)
    return plain if len(plain) == len(entries) else TypedMap.of_distinct(entries)


def identity_of(value: Any) -> Hashable:
    """Return what two values have in common if they are equal and of one type."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, float):
        if value != value:
            return type_of(value), "nan"
        return type_of(value), struct.pack(">f" if isinstance(value, Float32) else ">d", value)
    if isinstance(value, list | tuple):
        return list, tuple(map(identity_of, value))
    if isinstance(value, Mapping):
        return dict, frozenset((identity_of(key), identity_of(each)) for key, each in value.items())
    if isinstance(value, Struct):
        return value.schema, tuple(identity_of(value.get_without_default(each.name)) for each in value.schema.fields)
    if isinstance(value, Decimal):
        return Decimal, str(value)
    if isinstance(value, memoryview):
        return memoryview, bytes(value)
    if isinstance(value, Instant):
        return value
    return type_of(value), value
