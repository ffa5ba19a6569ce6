"""What real Kafka Streams left behind, as tests read it: tests/golden/kafka-streams, described by the README there.

Run as a program, it packs the directories that the generator wrote, always to the same bytes:
`python -m tests.support.golden.kafka_streams GENERATED`, where GENERATED holds dirs/ and facts.json.
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-streams"
SUFFIX = ".tar.xz"
FACTS = "facts.json.xz"

FIXTURES: list[str] = sorted(path.name.removesuffix(SUFFIX) for path in GOLDEN.glob(f"*{SUFFIX}"))


@dataclass(frozen=True)
class Fixture:
    """A task directory, and what Kafka Streams says about it. Shared by all tests of a run: never change the JSON.

    `restored` is None where no changelog was kept, which is what Kafka Streams 4.2.0 wrote (`old-*`).
    """

    name: str
    fixture: dict[str, Any]
    raw: list[dict[str, Any]]
    logical: dict[str, Any]
    restored: list[dict[str, Any]] | None

    def unpack(self, target: Path) -> Path:
        """Write the state below `target`, as if that were `state.dir`, and return the task's directory.

        Raises FileExistsError if the same application's task is there already.
        """
        task = Path(target, self.fixture["applicationId"], "0_0")
        task.mkdir(parents=True)
        for name, content in _members(self.name).items():
            if name.startswith("state/"):
                file = task / name.removeprefix("state/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        return task


@cache
def load_fixture(name: str) -> Fixture:
    """The fixture of that name, one of FIXTURES, read once."""
    members = _members(name)
    fixture, raw, logical = (json.loads(members[f"{part}.json"]) for part in ("fixture", "raw", "logical"))
    restored = json.loads(members["restored.json"]) if "restored.json" in members else None
    return Fixture(name, fixture, raw, logical, restored)


@cache
def facts() -> dict[str, dict[str, Any]]:
    """Single behaviours of Kafka Streams that were observed, by the sentence that names them; never change them."""
    return {fact["fact"]: fact for fact in json.loads(lzma.decompress((GOLDEN / FACTS).read_bytes()))}


def dump_task_directory(path: Path) -> list[dict[str, Any]]:
    """Everything in the databases below a task's directory, in the shape and order of raw.json.

    Databases by path, column families by age, entries by key. Files beside the databases are not looked at.
    """
    databases = {current.parent.relative_to(path).as_posix(): current.parent for current in path.rglob("CURRENT")}
    return [{"path": name, "columnFamilies": _dump_database(databases[name])} for name in sorted(databases)]


def _dump_database(database: Path) -> list[dict[str, Any]]:
    with _read_copy(database) as (db, families):
        opened: dict[str, Any] = {name: db.get_column_family(name) for name in families}
        dumped = [
            {"name": name, "entries": [[key.hex(), value.hex()] for key, value in family.items()]}
            for name, family in opened.items()
        ]
        for family in opened.values():
            family.close()
    return dumped


@contextmanager
def _read_copy(database: Path) -> Iterator[tuple[Rdict, list[str]]]:
    # rocksdict leaves its rocksdict-config.json behind even when it only reads, and would believe one that it finds.
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home, "copy")
        shutil.copytree(database, copy, ignore=shutil.ignore_patterns("rocksdict-config.json"))
        families = Rdict.list_cf(str(copy), Options(raw_mode=True))
        options = {name: Options(raw_mode=True) for name in families}
        db = Rdict(str(copy), Options(raw_mode=True), column_families=options, access_type=AccessType.read_only())
        try:
            yield db, families
        finally:
            db.close()


def _members(name: str) -> dict[str, bytes]:
    with tarfile.open(GOLDEN / f"{name}{SUFFIX}") as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive)
        return {path: file.read() for path, file in files if file is not None}


def _packed(directory: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            content = _compact(path) if path.parent == directory else path.read_bytes()
            # A member made from its name alone has no owner, no time and the mode 0644.
            member = tarfile.TarInfo(path.relative_to(directory).as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return _compressed(packed.getvalue())


def _compact(path: Path) -> bytes:
    return json.dumps(json.loads(path.read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":")).encode()


def _compressed(content: bytes) -> bytes:
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def main(generated: Path) -> None:
    """Write one archive for each directory of `generated`/dirs, and the facts."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for directory in sorted((generated / "dirs").iterdir()):
        (GOLDEN / f"{directory.name}{SUFFIX}").write_bytes(_packed(directory))
    (GOLDEN / FACTS).write_bytes(_compressed(_compact(generated / "facts.json")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
