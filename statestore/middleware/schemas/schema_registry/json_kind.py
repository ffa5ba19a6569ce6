"""JSON Schema, of any draft that jsonschema knows: values are what Python's json has, and follow their schema.

Schemas may come from anywhere, and a schema is a program. So it is bounded in size and depth, and in what it costs to
check one value. Nothing is fetched: what it refers to is in it, or one of its references. Patterns are those of RE2,
whose time grows with the text: without assertions about what is around, and without references to what was matched. A
dialect is named at the top only: within, jsonschema would change to that, without these bounds.

Source: JSON Schema Core and Validation, drafts 4 to 2020-12; Confluent's JSONSerializer.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DataException, DeserializationError
from statestore.format.serde import Serdes
from statestore.middleware.application import extra
from statestore.middleware.schemas.schema_registry.ids import RegisteredSchema
from statestore.middleware.schemas.schema_registry.parsed_schema import ParsedSchema, SchemaKind

_DEEPEST: Final = 200
"""The most objects and arrays of a schema within one another: an object in an object is two."""
_MOST_NODES: Final = 50_000
_LONGEST_PATTERN: Final = 1000
_MOST_STEPS: Final = 1_000_000
"""The most steps in which a schema is read, or a value is checked, and 100 more for each byte of the value."""
_STEPS_A_CHECK: Final = 10
"""What a keyword takes, besides one for each item that it looks at."""
_STEPS_A_VALUE: Final = 5
"""What a value takes that is compared."""
_STEPS_A_MATCH: Final = 50
"""What a pattern takes, besides those in which RE2 makes a program of it, for each text anew."""
_STEPS_A_CLASS: Final = 500
"""What a class of Unicode in a pattern takes, such as that of all letters."""
_COUNTED: Final = re.compile(r"(.*?)\{(\d+)(?:,(\d*))?\}", re.DOTALL)
_MALFORMED: Final = "Malformed JSON Schema"
_VALUES: Final = Serdes.json()
_steps = threading.local()


def _spend(steps: int) -> None:
    _steps.left -= steps
    if _steps.left < 0:
        raise DataException("To read a JSON Schema, or to check a value against it, takes too long")


@contextmanager
def _library_errors(problem: str) -> Iterator[None]:
    """Raise DataException for whatever jsonschema raises; its text may quote a value, and is left out."""
    try:
        yield
    except (DataException, MemoryError):
        raise
    except Exception as cause:
        raise DataException(f"{problem}: {type(cause).__name__}") from None


def _parse(registered: RegisteredSchema) -> ParsedSchema:
    with extra("schema-registry"):
        import jsonschema
        from referencing import Registry
        from referencing.jsonschema import specification_with
    _steps.left = _MOST_STEPS
    root = _document(registered.text)
    others = {name: _document(text) for name, text in registered.references}
    dialect = jsonschema.Draft202012Validator
    if isinstance(root, dict) and "$schema" in root:
        with _library_errors(_MALFORMED):
            dialect = jsonschema.validators.validator_for(root, default=None)
        if dialect is None:
            raise DataException(f"{_MALFORMED}: jsonschema does not know its $schema")
    with _library_errors(_MALFORMED):
        specification = specification_with(dialect.ID_OF(dialect.META_SCHEMA))
        documents = [root, *others.values()]
        for document in documents:
            if isinstance(document, dict):
                document.pop("$schema", None)  # it would undo `_bounded`
        keywords = _check_nodes(documents)
        for document in documents:
            dialect.check_schema(document, format_checker=None)  # patterns are RE2's, and checked as such
        if keywords >= {"unevaluatedProperties", "patternProperties"}:
            raise DataException("A JSON Schema can't have both unevaluatedProperties and patternProperties")
        resources = ((name, specification.create_resource(document)) for name, document in others.items())
        validator = _bounded(dialect)(root, registry=Registry().with_resources(resources))
    name = root.get("title") if isinstance(root, dict) else None
    return ParsedSchema(registered, JSON, name if isinstance(name, str) else None, validator)


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DataException(f"{_MALFORMED}: it is not JSON") from None


def _nodes_of(document: Any) -> Iterator[tuple[Any, int]]:
    """Yield all values in a document, itself among them, and how deep they stand."""
    waiting = [(document, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        waiting.extend((each, depth + 1) for each in inner)


def strings_of(document: Any) -> set[str]:
    """Return the texts in a document, wherever they stand."""
    return {node for node, _ in _nodes_of(document) if isinstance(node, str)}


def _check_nodes(documents: list[Any]) -> set[str]:
    """Check a schema and those that it names, and return the names of their objects."""
    names: set[str] = set()
    for count, (node, depth) in enumerate(_nodes_of(documents)):
        if depth > _DEEPEST + 1 or count > _MOST_NODES:
            raise DataException(f"A JSON Schema has over {_MOST_NODES} values, or they nest deeper than {_DEEPEST}")
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("$schema"), str):
            raise DataException(f"{_MALFORMED}: it names a dialect within")
        patterns = node.get("patternProperties")
        names |= node.keys()
        for pattern in (node.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
            if isinstance(pattern, str):
                _matches(pattern, "")
    return names


@lru_cache(1000)
def _compiled(pattern: str) -> tuple[pc.MatchSubstringOptions, int]:
    """Return a pattern as Arrow takes it, and the most steps in which one text is matched."""
    if len(pattern) > _LONGEST_PATTERN:
        raise DataException(f"A pattern of a JSON Schema has more than {_LONGEST_PATTERN} characters")
    steps, end = _STEPS_A_MATCH, 0
    for found in _COUNTED.finditer(pattern):
        part, times = found[1], int(found[3] or found[2])
        # What is counted is the group that ends here, which may be all, or stands since the last count.
        steps = (steps + _steps_of(part)) * times if part.endswith(")") else steps + _steps_of(part) * times
        end = found.end()
    return pc.MatchSubstringOptions(pattern), steps + _steps_of(pattern[end:])


def _steps_of(part: str) -> int:
    return 4 + len(part) + _STEPS_A_CLASS * part.lower().count(r"\p")


def _matches(pattern: str, text: str) -> bool:
    options, steps = _compiled(pattern)
    _spend(steps)
    try:
        found = pc.call_function("match_substring_regex", [pa.scalar(text)], options)
    except pa.ArrowInvalid:
        raise DataException("A pattern of a JSON Schema is not one of RE2") from None
    return bool(found.as_py())


@lru_cache(16)
def _bounded(dialect: Any) -> Any:
    """Return a dialect whose patterns are RE2's, and whose checks are counted."""
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def pattern(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not _matches(wanted, instance):
            yield ValidationError("pattern")

    def pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Any]:
        if validator.is_type(instance, "object"):
            for wanted, subschema in patterns.items():
                for key, value in instance.items():
                    if _matches(wanted, key):
                        yield from validator.descend(value, subschema, schema_path=wanted)

    def additional_properties(validator: Any, subschema: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "object"):
            patterns = schema.get("patternProperties", ())
            for key in instance.keys() - schema.get("properties", {}).keys():
                if not any(_matches(each, key) for each in patterns):
                    yield from validator.descend(instance[key], subschema)

    def unique_items(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
        # jsonschema compares each pair.
        if wanted and validator.is_type(instance, "array") and len(set(map(_hashable, instance))) < len(instance):
            yield ValidationError("uniqueItems")

    def equals(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
        if _hashable(wanted) != _hashable(instance):
            yield ValidationError("const")

    def is_one_of(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
        if not any(each == instance and _hashable(each) == _hashable(instance) for each in wanted):
            yield ValidationError("enum")

    def counted(check: Any) -> Any:
        def counted_check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
            _spend(_STEPS_A_CHECK + _items_of(wanted) + _items_of(instance))
            return check(validator, wanted, instance, schema)

        return counted_check

    own = {
        "const": equals,
        "enum": is_one_of,
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
        "uniqueItems": unique_items,
    }
    return extend(dialect, {name: counted(own.get(name, check)) for name, check in dialect.VALIDATORS.items()})


def _items_of(value: Any) -> int:
    return len(value) if isinstance(value, (list, dict, str)) else 0


def _hashable(value: Any) -> Any:
    """Return what is equal for values that are equal in JSON: 1 and 1.0 are, and 1 and true are not.

    Numbers become texts: anybody can write many integers of one hash.
    """
    _spend(_STEPS_A_VALUE)
    if isinstance(value, dict):
        return frozenset((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).encode() if isinstance(value, (int, float)) else value


def _write(schema: ParsedSchema, value: Any) -> bytes:
    data = _VALUES.serialize(value)
    # Checked is what will be read: Python's json writes tuples as arrays, and numbers as keys.
    _read(schema, None, data)
    return data


def _read(writer: ParsedSchema, reader: ParsedSchema | None, datum: bytes) -> Any:
    try:
        value = _VALUES.deserialize(datum)
    except DeserializationError as cause:
        raise DataException(f"{cause}") from cause
    _steps.left = _MOST_STEPS + 100 * len(datum)
    with _library_errors("A value can't be checked against its JSON Schema"):
        error = next((reader or writer).inner.iter_errors(value), None)
    if error is not None:
        place = "/".join(map(str, error.absolute_schema_path))
        raise DataException(f"A value does not follow its JSON Schema, at {place[:200] or 'its root'}")
    return value


def _names(text: str) -> set[str]:
    return {f"/{each.partition('#')[0]}" for each in strings_of(json.loads(text)) if not each.startswith("#")}


JSON: Final = SchemaKind(_parse, _write, _read, _names)
