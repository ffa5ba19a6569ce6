"""JSON of the durable location: a bit that flips in it is found, or changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore.errors.state import DurableFileCorruptedError
from statestore.format.json_fields import MALFORMED
from statestore.recovery.fences.history import Fence, read_fences, write_fence
from statestore.recovery.location.durable_json import from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, StateMetadata, read_metadata
from tests.support.recovery.shards import TOTALS

SOURCE = {"type": "source", "name": "orte, größer", "topics": None}
METADATA = StateMetadata("id-1", 2, "key", (0, 3), (TOTALS,), (SOURCE,))
FENCE = Fence(3, "run", 7, "host", 1_700_000_000_000, 2, "000000000007-00000002-" + "0" * 32, went_back=False)


def flipped(whole: bytes) -> Iterator[bytes]:
    """Yield `whole` with a bit of each of its bytes flipped."""
    for place in range(len(whole)):
        yield whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]


@pytest.mark.parametrize("fields", [{}, {"a": [1, "é\u2028", None], "Z": {"b": True}}, {"many": 2**70}])
@pytest.mark.parametrize("indent", [None, 2])
def test_fields_are_read_as_they_were_written(fields: dict[str, Any], indent: int | None) -> None:
    assert from_durable_json(to_durable_json(fields, indent=indent).encode()) == fields


def test_lines_of_their_own_keep_what_people_read() -> None:
    assert '  "name": "größer"' in to_durable_json({"name": "größer"}, indent=2)


def test_what_an_older_release_wrote_is_read_as_it_is() -> None:
    assert from_durable_json(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "data", [None, b"", b"null", b"7", b'{"a": 1, "digest": null}', b'{"a": 1, "digest": "00"}', b"[" * 99_999]
)
def test_what_is_none_of_ours_is_refused(data: bytes | None) -> None:
    with pytest.raises(MALFORMED):
        from_durable_json(data)


def test_a_flipped_bit_of_the_metadata_is_never_taken_for_another_topology(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    whole = METADATA.to_json().encode()
    refused = 0
    for damaged in flipped(whole):
        (tmp_path / METADATA_NAME).write_bytes(damaged)
        try:
            assert read_metadata(location) == METADATA
        except DurableFileCorruptedError:
            refused += 1
    spaces = sum(byte in b" \n" for byte in whole)
    assert refused >= len(whole) - spaces - len("digest"), "all but spaces and the name of the checksum"


def test_a_flipped_bit_of_a_fence_makes_it_one_that_cannot_be_read(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    write_fence(location, 0, FENCE)
    (path,) = tmp_path.rglob("*.fence")
    name = str(path.relative_to(tmp_path))
    whole = path.read_bytes()
    unreadable = Fence(FENCE.epoch, FENCE.run, None)
    refused = 0
    for damaged in flipped(whole):
        path.write_bytes(damaged)
        (found,) = read_fences(location, [name])
        assert found in (FENCE, unreadable)
        refused += found == unreadable
    assert refused >= len(whole) - whole.count(b" ") - len("digest")


def test_the_checksum_is_that_of_the_page(tmp_path: Path) -> None:
    fields = {"b": "ö", "a": [1, None]}

    recorded = json.loads(to_durable_json(fields))["digest"]
    text = '{"a":[1,null],"b":"\\u00f6"}'
    assert recorded == hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()
