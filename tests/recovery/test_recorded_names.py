"""Which names may become part of a path."""

from __future__ import annotations

import pytest

from statestore.errors.state import UnsafeNameError
from statestore.recovery.location.shard_files import is_relative_name, path_part


@pytest.mark.parametrize("name", ["a", "9", "state-1", "A.b_c-d", "a..b", "x" * 128])
def test_a_part_of_a_path_is_handed_back(name: str) -> None:
    assert path_part(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "-a", "_a", "a/b", "a\\b", "a\0b", "a\n", "ä", "a b", "x" * 129, 7, None, b"a", ["a"]]
)
def test_what_is_no_part_of_a_path_is_refused(name: object) -> None:
    with pytest.raises(UnsafeNameError) as raised:
        path_part(name)
    assert raised.value.name == repr(name)


def test_of_a_long_name_the_beginning_is_told() -> None:
    with pytest.raises(UnsafeNameError) as raised:
        path_part("x" * 1_000_000)
    assert raised.value.name == "'" + "x" * 199


@pytest.mark.parametrize("name", ["a", "a/b", "..a", "a..b/...", "with space/ä", "x" * 1024])
def test_a_name_below_another_one(name: str) -> None:
    assert is_relative_name(name)


@pytest.mark.parametrize(
    "name", ["", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "a\\b", "a\nb", "a\x7fb", "x" * 1025]
)
def test_a_name_that_leads_elsewhere(name: str) -> None:
    assert not is_relative_name(name)
