"""Values of schemas that hold themselves come back, and how deep they nest is known before fastavro reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.errors import SerializationError
from statestore.errors.middleware import IncompatibleSchemaError
from statestore.middleware.schemas.schema_registry import IdPlace, avro_serde
from tests.support.avro_schemas import confluent, read, record_of, written

HOLDS_ITSELF = record_of("Order", {"name": "next", "type": ["null", "Order"]})


def chain_of(links: int) -> Any:
    value: Any = {"next": None}
    for _ in range(links):
        value = {"next": value}
    return value


def test_values_of_schemas_that_hold_themselves_are_bounded() -> None:
    # fastavro follows them with the stack of the process, which would be its end.
    registry = confluent()
    serde = avro_serde(registry, HOLDS_ITSELF, place=IdPlace.PREFIX)
    data, _ = written(serde, chain_of(190))
    assert read(serde, data, None) == chain_of(190)
    for deep in (data[:5] + b"\x02" * 200 + b"\0", data[:5] + b"\x02" * 1_000_000 + b"\0"):
        with pytest.raises(IncompatibleSchemaError, match="nest deeper than 400"):
            read(serde, deep, None)
    with pytest.raises(SerializationError, match="nest deeper than 400"):
        written(serde, chain_of(100_000))
    for malformed in (data[:-1], data + b"\0", data[:5] + b"\x04", data[:5] + b"\x01", data[:5] + b"\xff" * 11):
        with pytest.raises(IncompatibleSchemaError):
            read(serde, malformed, None)


TREE = record_of(
    "Tree",
    {"name": "kinds", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "children", "type": {"type": "array", "items": "Tree"}},
    {"name": "by_name", "type": {"type": "map", "values": "Tree"}},
    {"name": "parts", "type": [{"type": "fixed", "name": "Mark", "size": 2}, "bytes", "boolean", "float", "double"]},
)
LEAF = st.fixed_dictionaries(
    {
        "kinds": st.sampled_from("AB"),
        "children": st.just([]),
        "by_name": st.just({}),
        "parts": st.one_of(
            st.just(b"xy"), st.binary(min_size=3, max_size=5), st.booleans(), st.floats(width=32, allow_nan=False)
        ),
    }
)


@settings(max_examples=50)
@given(
    st.recursive(
        LEAF,
        lambda trees: st.builds(
            lambda leaf, children, by_name: leaf | {"children": children, "by_name": by_name},
            LEAF,
            st.lists(trees, max_size=3),
            st.dictionaries(st.text(max_size=3), trees, max_size=3),
        ),
        max_leaves=6,
    )
)
def test_trees_come_back(tree: Any) -> None:
    serde = avro_serde(TREES, TREE)
    data, headers = written(serde, tree)
    assert read(serde, data, headers) == tree


def test_blocks_with_their_sizes_are_passed_over_too() -> None:
    leaf = b"\x00" + b"\x00" + b"\x00" + b"\x00xy"
    data, headers = written(avro_serde(TREES, TREE), {"kinds": "A", "children": [], "by_name": {}, "parts": b"xy"})
    assert data == leaf
    both = b"\x00" + b"\x03" + bytes([2 * 2 * len(leaf)]) + leaf * 2 + b"\x00" + b"\x00" + b"\x00xy"
    assert len(read(avro_serde(TREES, TREE), both, headers)["children"]) == 2
    # A union's places from its end, which fastavro takes.
    with pytest.raises(IncompatibleSchemaError, match="no place -1"):
        read(avro_serde(TREES, TREE), b"\x00" * 3 + b"\x01" + bytes(8), headers)


TREES = confluent()


@pytest.mark.parametrize(
    "schema",
    [
        record_of("A", {"name": "a", "type": "A"}),
        record_of("A", {"name": "a", "type": {"type": "array", "items": "A"}}),
        record_of("A", *({"name": f"n{n}", "type": "null"} for n in range(9)), {"name": "a", "type": ["null", "A"]}),
    ],
)
def test_schemas_that_hold_themselves_and_take_few_bytes_end_no_process(schema: Any) -> None:
    registry = confluent()
    number = registry.connection.register_schema("s", Schema(json.dumps(schema), "AVRO"))
    for byte in (b"\x02", b"\x00", b"\x7f"):
        data = b"\0" + number.to_bytes(4, "big") + byte * 10_000
        with pytest.raises(IncompatibleSchemaError):
            read(avro_serde(registry), data, None)
