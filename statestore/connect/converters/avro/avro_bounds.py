"""Bounds of Avro schemas that anybody may have written, and of values of those that hold themselves.

fastavro follows a schema with the stack of the process, and makes as many elements as the bytes tell it to: bytes of a
type that holds itself end the process, and ten bytes of an array of nulls take all its memory. So schemas are bounded
in depth, in size, and in how many values a few bytes can be. How deep bytes nest is found without the process's stack,
and no value is made of them.

Source: the Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from statestore.connect.recursion import Steps, call, too_deep
from statestore.errors import DataException, FormatError
from statestore.format.varint import decode_varlong

DEEPEST: Final = 100
"""The most levels of a type, with those of the types that it names."""
_DEEPEST_JSON: Final = 4 * DEEPEST
"""The most levels of JSON: an optional record is a union, an object in it, its fields, and one of these."""
_MOST_TYPES: Final = 10_000
"""The most types of a schema. A type counts each time that it is named."""
_VALUES_PER_BYTE: Final = 8
"""The most values that a byte of an array or a map may stand for."""
_LARGEST_FIXED: Final = 2**31 - 1
_LISTS: Final = {"record": "fields", "error": "fields", "enum": "symbols"}
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}
"""The fewest bytes of a value. Other types take 1, or as many as their parts."""
_FACTS: Final = frozenset(
    {"type", "name", "namespace", "doc", "fields", "items", "values", "symbols", "size"}
    | {"logicalType", "precision", "scale"}
)
RESOLUTION_FACTS: Final = frozenset({"default", "aliases"})
"""What else is read of a schema, if its data may have been written with another one."""
DEEPEST_VALUE: Final = 400
"""The most records, unions, arrays and maps within one another. fastavro needs a stack of 256 KB for them."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long", "enum"})


class _Size(NamedTuple):
    levels: int
    types: int
    surplus: int
    """How many values it can be beyond `_VALUES_PER_BYTE` for each of its bytes."""


def facts_of(node: Any, others: frozenset[str] = frozenset(), depth: int = 0) -> Steps:
    """Return what is read of a schema. It is bounded in depth, and has none of the marks that fastavro sets itself."""
    if depth == _DEEPEST_JSON:
        raise schema_too_deep()
    if isinstance(node, list):
        elements = []
        for each in node:
            elements.append((yield facts_of(each, others, depth + 1)))
        return elements
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    wanted = _LISTS.get(kind) if isinstance(kind, str) else None
    if wanted is not None and not isinstance(node.get(wanted), list):
        raise DataException(f"The {wanted} of an Avro {kind} must be an array")
    facts = {}
    for name in node.keys() & (_FACTS | others):
        facts[name] = node[name] if name in RESOLUTION_FACTS else (yield facts_of(node[name], others, depth + 1))
    return facts


def schema_too_deep() -> DataException:
    """Return the error of a schema that nests too deeply."""
    return DataException(f"Schemas nest deeper than {DEEPEST} levels")


def check_bounds(parsed: Any, named: Mapping[str, Any] | None = None, *, may_hold_itself: bool = False) -> bool:
    """Check a schema that fastavro parsed, and return whether it holds itself; `named` are types of other schemas.

    Raises DataException if it is too deep or too large, holds itself and may not, or an array whose elements take too
    few bytes. Of one that may hold itself, `check_nesting` has to look at all bytes, too.
    """
    bounds = _Bounds(named or {}, may_hold_itself)
    bounds.size_of(parsed, 0)
    return bool(bounds.hold_themselves)


class _Bounds:
    """Measures one schema. `_sizes` has the types that were named so far, with None while they are measured."""

    def __init__(self, others: Mapping[str, Any], may_hold_itself: bool) -> None:
        self._others = others
        self._may_hold_itself = may_hold_itself
        self.hold_themselves: set[str] = set()
        self._sizes: dict[str, _Size | None] = {}

    def size_of(self, node: Any, depth: int) -> _Size:
        if depth > DEEPEST:
            raise schema_too_deep()
        if isinstance(node, str) and (node in self._sizes or node in self._others):
            return self._size_of_name(node, depth)
        size = self._union(node, depth) if isinstance(node, list) else self._type(node, depth)
        if size.levels > DEEPEST:
            raise schema_too_deep()
        if size.types > _MOST_TYPES:
            raise DataException(f"An Avro schema holds more than {_MOST_TYPES} types")
        return size

    def _size_of_name(self, name: str, depth: int) -> _Size:
        if name not in self._sizes:
            self._sizes[name] = None
            self._sizes[name] = self.size_of(self._others[name], depth)
        size = self._sizes[name]
        if size is not None:
            return size
        if not self._may_hold_itself:
            raise DataException(f"The Avro type {name[:80]} holds itself, which no typed schema can")
        self.hold_themselves.add(name)
        return _Size(1, 1, 1 - _VALUES_PER_BYTE)

    def _union(self, branches: list[Any], depth: int) -> _Size:
        sizes = [self.size_of(branch, depth) for branch in branches]
        types = sum(size.types for size, branch in zip(sizes, branches, strict=True) if branch != "null")
        surplus = max((size.surplus for size in sizes), default=1) - _VALUES_PER_BYTE
        return _Size(max((size.levels for size in sizes), default=1), types, surplus)

    def _type(self, node: Any, depth: int) -> _Size:
        kind = node if isinstance(node, str) else node["type"]
        if kind in ("record", "error"):
            return self._record(node, depth)
        if kind == "array":
            return self._elements(self.size_of(node["items"], depth + 1))
        if kind == "map":
            value = self.size_of(node["values"], depth + 1)
            return self._elements(_Size(value.levels, value.types + 2, value.surplus + 2 - _VALUES_PER_BYTE))
        least_bytes = _LEAST_BYTES.get(kind, 1)
        if kind == "fixed":
            least_bytes = node["size"]
            if type(least_bytes) is not int or not 0 <= least_bytes <= _LARGEST_FIXED:
                raise DataException("The size of an Avro fixed must be a count of bytes")
        size = _Size(1, 1, 1 - _VALUES_PER_BYTE * least_bytes)
        if kind in ("fixed", "enum"):
            self._sizes[node["name"]] = size
        return size

    def _record(self, node: Mapping[str, Any], depth: int) -> _Size:
        self._sizes[node["name"]] = None
        parts = [self.size_of(field["type"], depth + 1) for field in node["fields"]]
        levels = max((part.levels for part in parts), default=0) + 1
        size = _Size(levels, sum(part.types for part in parts) + 1, sum(part.surplus for part in parts) + 1)
        if node["name"] in self.hold_themselves and size.surplus > 0:
            raise _too_few_bytes()
        self._sizes[node["name"]] = size
        return size

    def _elements(self, element: _Size) -> _Size:
        if element.surplus > 0:
            raise _too_few_bytes()
        return _Size(element.levels + 1, element.types + 1, 1 - _VALUES_PER_BYTE)


def _too_few_bytes() -> DataException:
    return DataException(f"Elements of an Avro array must not be over {_VALUES_PER_BYTE} values for each byte")


def check_nesting(schema: Any, named: Mapping[str, Any], data: bytes) -> None:
    """Check bytes of a schema that fastavro parsed, and which names types.

    Raises DataException if they nest deeper than DEEPEST_VALUE, or do not follow the schema.
    """
    call(_Passage(named, data).steps, schema, deepest=DEEPEST_VALUE)


def check_value_nesting(value: Any) -> None:
    """Check a value before it is written. Raises DataException if it nests deeper than DEEPEST_VALUE."""
    waiting = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list | tuple):
            if depth > DEEPEST_VALUE:
                raise too_deep(DEEPEST_VALUE)
            waiting += [(inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each)]


class _Passage:
    """Passes over one value; `_at` is the place in the bytes that comes next."""

    def __init__(self, named: Mapping[str, Any], data: bytes) -> None:
        self._named = named
        self._data = data
        self._at = 0

    def steps(self, node: Any) -> Steps:
        """Pass over a value, and yield the schemas of those that stand in it."""
        node = self._named.get(node, node) if isinstance(node, str) else node
        if isinstance(node, list):
            place = self._number()
            if not 0 <= place < len(node):
                raise DataException(f"Malformed Avro: a union has no place {place}")
            yield node[place]
            return
        kind = node if isinstance(node, str) else node["type"]
        if kind in ("record", "error"):
            for field in node["fields"]:
                yield field["type"]
        elif kind in ("array", "map"):
            for _ in self._elements():
                if kind == "map":
                    self._pass(self._number())
                yield node["items" if kind == "array" else "values"]
        elif kind in _NUMBERS:
            self._number()
        elif kind == "fixed":
            self._pass(node["size"])
        else:
            self._pass(_SIZES[kind] if kind in _SIZES else self._number())

    def _elements(self) -> Iterator[None]:
        while count := self._number():
            if count < 0:
                count = -count
                self._number()
            for _ in range(count):
                yield

    def _number(self) -> int:
        try:
            number, self._at = decode_varlong(self._data, self._at, "Avro")
        except FormatError as cause:
            raise DataException(f"Malformed Avro: {cause}") from cause
        return number

    def _pass(self, count: int) -> None:
        self._at += count
        if count < 0 or self._at > len(self._data):
            raise DataException("Malformed Avro: there are fewer bytes than its schema asks for")
