"""A map tells its keys apart by type."""

from decimal import Decimal

import pytest

from statestore.connect import Float32, Int8, Int16, TypedMap
from statestore.connect.typed_map import map_of_distinct


def test_keys_are_equal_in_their_type() -> None:
    keys = [
        Int8(1),
        Int16(1),
        True,
        Float32(1),
        1.0,
        0.0,
        -0.0,
        Decimal("1.0"),
        Decimal("1.00"),
        "1",
        b"1",
        [1],
        {1: 2},
    ]
    made = TypedMap((key, number) for number, key in enumerate(keys))
    assert [made[key] for key in keys] == list(range(len(keys)))
    assert list(map(type, made)) == list(map(type, keys))
    assert 1 not in made, "a plain int is an INT64"
    assert float("nan") in TypedMap([(float("nan"), 1)])


def test_the_last_value_counts_at_the_place_of_the_first() -> None:
    assert list(TypedMap([("a", 1), ("b", 2), ("a", 3)]).items()) == [("a", 3), ("b", 2)]


def test_it_equals_any_map_of_its_entries() -> None:
    assert TypedMap([("a", 1), ("b", [2])]) == {"b": [2], "a": 1}
    assert TypedMap([("a", 1)]) == {"a": 1}
    assert TypedMap([("a", 1)]) != {"a": 2}
    assert TypedMap([("a", 1)]) != {"b": 1}
    assert TypedMap([("a", 1)]) != [("a", 1)]


def test_a_dict_is_made_where_one_will_do() -> None:
    assert type(map_of_distinct([("a", 1), ("b", 2)])) is dict
    assert type(map_of_distinct([(Int8(1), 1), (True, 2)])) is TypedMap
    assert type(map_of_distinct([([1], 1)])) is TypedMap


def test_a_key_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError):
        TypedMap([("a", 1)])["b"]
