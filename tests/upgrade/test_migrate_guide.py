"""The commands of docs/migrating-state.md, one after the other, on an application like the one that it tells of."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.upgrades import upgradable
from statestore.format.keys.partitioner import partition_column
from statestore.format.keys.window_key import encode_session_key, encode_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.commit.pointer import initial_pointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from upgrade_tools.cli.app import main

GUIDE = Path(__file__).parents[2] / "docs" / "migrating-state.md"
HOUR_MS = 3_600_000
STAMP = (1_600_000_000_000).to_bytes(8, "big")
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
COUNTS = StoreSpec("counts", StoreKind.KEY_VALUE, StoreFormat.PLAIN)
VISITS = StoreSpec("visits", StoreKind.WINDOW, StoreFormat.TIMESTAMPED, HOUR_MS, HOUR_MS // 2, 10_000)
BASKETS = StoreSpec("baskets", StoreKind.SESSION, StoreFormat.PLAIN, HOUR_MS, HOUR_MS // 2)
HEADED = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)


def commands() -> list[str]:
    """The lines of the guide that a shell would run, in order."""
    found = re.findall(r"^python -m (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) > 10
    return found


def make_application(home: Path) -> None:
    """Write what Kafka Streams would leave; there is nothing of ours in it."""
    keys = [b"customer-%d" % number for number in range(20)]
    places = partition_column(pa.array(keys, pa.binary()), 2).tolist()
    for partition in range(2):
        with TaskDirectory(home / f"0_{partition}", "shop", partition) as task:
            stores = {spec.name: task.open_store(spec) for spec in (TOTALS, COUNTS, VISITS, BASKETS)}
            for key, place in zip(keys, places, strict=True):
                if place == partition:
                    stores["totals"].put(key, STAMP + b"7")
                    stores["counts"].put(key, b"3")
                    stores["visits"].put(segment_prefix(1) + encode_window_key(key, HOUR_MS // 2), STAMP + b"v")
                    stores["baskets"].put(segment_prefix(2) + encode_session_key(key, HOUR_MS, HOUR_MS + 9), b"s")
            for name in stores:
                task.commit(name, 5, {"orders": {partition: 9}})
    for record in home.rglob("statestore.store.json"):
        record.unlink()


def write_as_the_application_would(home: Path) -> None:
    """Start the application with its new builder for one store, which finds everything in its new format."""
    with TaskDirectory(home / "0_0", "shop", 0) as task:
        assert upgradable(task.open_store(HEADED)) is None


def write_pointers(home: Path) -> None:
    """Write what a checkpoint says of a query that has committed nothing yet."""
    location = DurableLocation(home / "state")
    metadata = read_metadata(location)
    assert metadata is not None
    pointers = [initial_pointer(location, metadata.state_id, shard) for shard in range(metadata.shards)]
    (home / "pointers").write_text("".join(f"{pointer.to_json()}\n" for pointer in pointers))


def test_each_command_of_the_guide_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_application(tmp_path / "streams" / "shop")
    (tmp_path / "offsets.json").write_text(
        '{"shop-totals-changelog": {"0": 41, "1": 17}, "shop-visits-changelog": {"0": 90, "1": 88}}'
    )
    said = {}
    for command in commands():
        program, *arguments = shlex.split(command)
        if program == "statestore.spark":
            assert arguments == ["pointers", "CHECKPOINT", ">", "pointers"]
            write_pointers(tmp_path)  # there is no query here that had a checkpoint
            continue
        assert program == "upgrade_tools"
        assert main(arguments) == 0, f"{command}\n{capsys.readouterr().err}"
        said[command] = capsys.readouterr().out
        if "finish-upgrade" in command:
            write_as_the_application_would(tmp_path / "streams" / "shop")
    assert_headers_everywhere(tmp_path)
    assert any("bytes are needed" in out for out in said.values())
    assert sum("verified entry by entry" in out for out in said.values()) == 7


def assert_headers_everywhere(home: Path) -> None:
    metadata = read_metadata(DurableLocation(home / "state"))
    assert metadata is not None
    formats: dict[str, Any] = {spec.name: spec.format for spec in metadata.stores}
    assert formats == {
        "totals": StoreFormat.TIMESTAMPED_WITH_HEADERS,
        "counts": StoreFormat.TIMESTAMPED_WITH_HEADERS,
        "visits": StoreFormat.TIMESTAMPED_WITH_HEADERS,
        "baskets": StoreFormat.WITH_HEADERS,
    }
    for partition, offset in ((0, 41), (1, 17)):
        with TaskDirectory(home / "streams-again" / "shop" / f"0_{partition}", "shop", partition) as task:
            entries = list(task.open_store(HEADED).range(None, None))
            assert {value for _, value in entries} == {b"\0" + STAMP + b"7"}
            assert task.changelog_offset("totals") == offset
            counts = task.open_store(StoreSpec("counts", HEADED.kind, HEADED.format))
            assert {value[1:9] for _, value in counts.range(None, None)} == {(1_700_000_000_000).to_bytes(8, "big")}
            assert task.changelog_offset("counts") is None
