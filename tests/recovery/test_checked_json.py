"""Small JSON files on the local disk: read as they were written, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statestore.errors import FormatError
from statestore.recovery.snapshots.planned import (
    checked_json,
    parse_checked_json,
    read_checked_json,
    write_checked_json,
)


@pytest.mark.parametrize("content", [None, {}, {"a": [1, "é\u2028", None]}, ["name", 7, "00"]])
def test_content_is_read_as_it_was_written(tmp_path: Path, content: Any) -> None:
    write_checked_json(tmp_path / "file.json", content)
    assert read_checked_json(tmp_path / "file.json") == content
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_it_is_one_line_so_that_a_file_can_have_several() -> None:
    assert "\n" not in checked_json({"a": "two\nlines"})


def test_a_file_that_is_not_there_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_checked_json(tmp_path / "none.json")


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    whole = checked_json({"version": 7}).encode()
    for place in range(len(whole)):
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for text in (damaged, whole[:place]):
            with pytest.raises(FormatError):
                parse_checked_json(text)


@pytest.mark.parametrize("text", ["null", "[]", "7", '{"content": 7, "digest": 7}', json.dumps({"content": "1"})])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="local file"):
        parse_checked_json(text)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_checked_json(path, 1)
    with open(path, "rb") as opened:
        write_checked_json(path, 2)
        assert parse_checked_json(opened.read()) == 1, "who has it open reads what it was"
    assert read_checked_json(path) == 2
