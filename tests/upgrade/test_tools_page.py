"""The commands of docs/tools.md run as they stand there, and print what the page shows."""

import re
from pathlib import Path

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.format.records.header_bytes import encode_headers
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from tests.support.documentation import ROOT
from tests.support.golden.kafka_streams import load_fixture
from tests.support.recovery.shards import TOTALS, Shard, stored
from tests.support.tools.page_commands import PageCommands
from upgrade_tools.cli.app import app
from upgrade_tools.cli.exit_codes import ExitCode

PAGE = ROOT / "docs/tools.md"
LOOKING = ("inspect", "scan", "get", "verify", "diff", "inspect-delta")
"""The commands that are run here; those that make something are run where they are tested."""
TOPOLOGY = ({"type": "source", "name": "in", "topics": None},)


def committed(home: Path, task: Path) -> tuple[CommitPointer, Path]:
    """A location that holds what the task's directory does, and its only delta."""
    shard = Shard(home)
    agree_on_metadata(shard.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), TOPOLOGY))
    writes = {b"KEY": stored(b"1", 5, encode_headers([("tenant", b"eu")])), b"other": stored(b"2")}
    database = RocksDBDatabase(str(task / "rocksdb/totals"), ["keyValueWithTimestampAndHeaders"], compacting=False)
    database.family("keyValueWithTimestampAndHeaders").write(writes.items())
    database.close()
    pointer = shard.batch(shard.start(), dict(writes))
    return pointer, shard.delta_file(pointer)


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    pointer, delta = committed(tmp_path, tmp_path / "app/0_0")
    (tmp_path / "pointers").write_text(pointer.to_json())
    half = str(load_fixture("headers-kv-from-ts").unpack(tmp_path / "half"))
    words = {"FILE": str(tmp_path / "pointers"), "LOCATION": str(tmp_path / "state"), "DELTA": str(delta)}
    page = PageCommands(PAGE, {**words, "DIR": half})
    page.left = [command for command in page.left if command[1] in LOOKING]
    shown = re.search(r"```text\nDIR: .*?```", PAGE.read_text(encoding="utf-8"), re.S)
    assert shown is not None
    printed = page.run("upgrade_tools", "inspect").replace(half, "DIR")
    assert [line.rstrip() for line in printed.splitlines()] == shown[0].splitlines()[1:-1]
    page.words = {**words, "DIR": str(tmp_path / "app/0_0")}
    assert page.run("upgrade_tools", "scan").splitlines() == [
        "KEY  -> 1  timestamp 5  tenant=eu",
        "other  -> 2  timestamp 5",
    ]
    assert page.run("upgrade_tools", "scan", "--header") == "KEY  -> 1  timestamp 5  tenant=eu\n"
    assert '"entries": [' in page.run("upgrade_tools", "scan", "--json")
    assert page.run("upgrade_tools", "get") == "KEY  -> 1  timestamp 5  tenant=eu\n"
    assert "all of it can be read" in page.run("upgrade_tools", "verify")
    assert "all of it can be read" in page.run("upgrade_tools", "verify")
    assert page.run("upgrade_tools", "verify") == "totals: 2 entries, the same\n"
    assert page.run("upgrade_tools", "diff") == ""
    assert "makes version 1, 2 records" in page.run("upgrade_tools", "inspect-delta")
    assert page.left == []


def test_every_command_has_a_place_on_the_page() -> None:
    headings = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert {command.name for command in app.registered_commands} <= {
        name for heading in headings for name in heading.split(" and ")
    }


def test_every_exit_code_is_on_the_page() -> None:
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert [int(code) for code in listed] == sorted(ExitCode)
