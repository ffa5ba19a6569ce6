"""Commit pointers whose snapshots, deltas and versions do not fit together are not taken for ours."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from statestore.errors.state import CommitPointerError, UnreadableCommitError
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.commit.pointer_fields import BatchEnd, RecordedPunctuation
from tests.support.recovery.shards import Shard, stored

RETAINED = 100


def made() -> dict[str, Any]:
    """Return a pointer at version 8 with the snapshots of 2, 4 and 6, as JSON."""
    pointer = CommitPointer("s", 0)
    for version in range(1, 9):
        delta = DurableFile(f"delta-{version}", 10, "aa")
        pointer = pointer.advance(delta, BatchEnd(stream_time_ms=5))
        snapshot = version - 1
        if snapshot in (2, 4, 6):
            manifest = DurableFile(f"manifest-{snapshot}", 10, "bb")
            pointer = pointer.with_snapshot(snapshot, manifest, f"delta-{snapshot}", retained_versions=RETAINED)
    assert CommitPointer.from_json(pointer.to_json()) == pointer
    fields: dict[str, Any] = json.loads(pointer.to_json())
    assert [(snapshot[0], snapshot[-1]) for snapshot in fields["snapshots"]] == [(2, 3), (4, 5), (6, 7)]
    return fields


@pytest.mark.parametrize(
    "damage",
    [
        lambda fields: fields["snapshots"].__setitem__(0, fields["snapshots"][1]),
        lambda fields: fields["snapshots"][0].__setitem__(0, 5),
        lambda fields: fields["snapshots"][2].__setitem__(0, 9),
        lambda fields: fields["snapshots"][2].__setitem__(-1, 9),
        lambda fields: fields["snapshots"][2].__setitem__(-1, 5),
        lambda fields: fields["snapshots"][0].__setitem__(-1, 1),
        lambda fields: fields["snapshots"][2].__setitem__(-2, "delta-5"),
        lambda fields: fields["deltas"].pop(),
        lambda fields: fields["snapshots"].pop(),
        lambda fields: fields.update(version=9),
    ],
    ids=[
        "two snapshots of one version",
        "snapshots out of order",
        "a snapshot above the version",
        "since above the version",
        "since below its own version",
        "an older snapshot that was there before its version",
        "the newest snapshot is of another delta",
        "a delta too few",
        "a snapshot too few",
        "a version too many",
    ],
)
def test_a_pointer_that_does_not_fit_together_is_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    fields = made()
    damage(fields)
    with pytest.raises(CommitPointerError, match="is not one of ours"):
        CommitPointer.from_json(json.dumps(fields))


BEYOND_MS = 2**63


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({"stream_time_ms": BEYOND_MS}, "stream_time_ms", "9223372036854775808 is not a whole number"),
        ({"stream_time_ms": 5.0}, "stream_time_ms", "5.0 is not a whole number"),
        ({"stream_time_ms": object()}, "stream_time_ms", "not JSON serializable"),
        ({"skipped_records": -1}, "skipped_records", "-1 is not a whole number"),
        (
            {"punctuations": {"totals": [RecordedPunctuation("stream-time", 10, None, BEYOND_MS)]}},
            "punctuations",
            "node 'totals': 9223372036854775808 is not a whole number",
        ),
        ({"punctuations": {7: ()}}, "punctuations", "reads back as {'7': ()}"),
        ({"processor_metadata": {"s": BEYOND_MS}}, "metadata", "'s': 9223372036854775808 is not a whole number"),
        ({"processor_metadata": {7: 1}}, "processor_metadata", "reads back as {'7': 1}"),
    ],
)
@pytest.mark.parametrize("changes", [{}, {b"a": stored(b"1")}], ids=["no delta", "a delta"])
def test_what_could_not_be_read_back_is_not_committed(
    shard: Shard, changes: dict[bytes, bytes | None], given: dict[str, Any], field: str, problem: str
) -> None:
    with shard.open(shard.start()) as batch:
        batch.stores["totals"].write(changes.items())
        with pytest.raises(UnreadableCommitError, match="was not committed") as failure:
            batch.commit(BatchEnd(**given))
    assert (failure.value.shard, failure.value.version) == (0, 1 if changes else 0)
    assert failure.value.field == field
    assert problem in str(failure.value)


def test_times_of_stores_are_read_back_too(shard: Shard) -> None:
    with (
        shard.open(shard.start()) as batch,
        pytest.raises(UnreadableCommitError, match="stores: 9223372036854775808"),
    ):
        batch.commit(BatchEnd(store_times_ms={"windows": BEYOND_MS}))
