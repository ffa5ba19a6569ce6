"""The functions that statements of `dsl_programs` name, as in tests/java/RunDsl.java."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.twins.kit import text


def size(value: Any) -> int:
    """How long a text is, or what a number is."""
    if value is None:
        return 0
    return value if isinstance(value, int) else len(value)


def lesser(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


MAPPERS: dict[str, Callable[..., Any]] = {
    "key_and_text": lambda key, value: f"{text(key)}:{text(value)}",
    "text": text,
    "upper": lambda value: None if value is None else value.upper(),
    "append_x": lambda value: None if value is None else f"{value}x",
    "size": size,
    "null_if_x": lambda value: None if value == "x" else value,
}

FLAT_MAPPERS: dict[str, Callable[[Any], list[Any]]] = {
    "letters": lambda value: [] if value is None else list(value) or [""],
    "twice": lambda value: [value, value],
}

PAIRS: dict[str, Callable[[Any, Any], list[tuple[Any, Any]]]] = {
    "swap": lambda key, value: [(text(value), key)],
    "both": lambda key, value: [(key, value), (text(value), value)],
    "by_size": lambda key, value: [(None if value == "x" else text(size(value)), value)],
    "none_if_x": lambda key, value: [] if value == "x" else [(key, value)],
}

PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "is_even": lambda key, value: size(value) % 2 == 0,
    "is_long": lambda key, value: size(value) > 1,
    "key_is_a": lambda key, value: key == "a",
    "has_key": lambda key, value: key is not None,
    "is_null": lambda key, value: value is None,
}

REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "concat": lambda old, added: f"{text(old)},{text(added)}",
    "min": lesser,
    "sum": lambda old, added: size(old) + size(added),
    "difference": lambda old, gone: size(old) - size(gone),
    "less": lambda old, gone: f"{text(old)}-{text(gone)}",
    "null_if_x": lambda old, added: None if added == "x" else added,
}

AGGREGATORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "concat": lambda key, value, aggregate: f"{text(aggregate)}+{text(value)}",
    "sum": lambda key, value, aggregate: size(aggregate) + size(value),
    "difference": lambda key, value, aggregate: size(aggregate) - size(value),
    "less": lambda key, value, aggregate: f"{text(aggregate)}-{text(value)}",
    "key_and_min": lambda key, value, aggregate: lesser(text(key) + text(value), aggregate),
    "null_if_x": lambda key, value, aggregate: None if value == "x" else f"{text(aggregate)}/{text(value)}",
}

JOINERS: dict[str, Callable[..., Any]] = {
    "key_and_pair": lambda key, left, right: f"{text(key)}:{text(left)}&{text(right)}",
    "pair": lambda left, right: f"{text(left)}&{text(right)}",
    "right": lambda left, right: right,
    "null_if_x": lambda left, right: None if left == "x" else f"{text(left)}&{text(right)}",
}

FOREIGN_KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "letter": lambda key, value: None if value == "x" else "abc"[abs(size(value)) % 3],
    "key": lambda key, value: None if value == "x" else key,
}

KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "key": lambda key, value: key,
    "value": lambda key, value: value,
    "null_if_x": lambda key, value: None if value == "x" else key,
}
