"""How deep the bytes of an Avro schema that holds itself nest: found without the process's stack, before fastavro's is.

Bytes are passed over, and no value is made of them. Source: the Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from statestore.connect.recursion import Steps, call, too_deep
from statestore.errors import DataException, FormatError
from statestore.format.varint import decode_varlong

DEEPEST_VALUE: Final = 400
"""How many records, unions, arrays and maps stand in each other. fastavro has room for that in a stack of 256 KB."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long", "enum"})


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
