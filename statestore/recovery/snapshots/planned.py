"""A snapshot under way, as files in the shard's local directory.

    digests.json              checksums of tables that were uploaded: tables never change
    snapshot-failures         a byte for each failure, until a batch counts them
    last-snapshot-failure     the last failure, for people
    snapshot/checkpoint/      the database, as hard links
    snapshot/plan.json        what it is, where it goes, and which files belong to it
    snapshot/uploaded.jsonl   what was uploaded: an interrupted upload goes on after that
    snapshot/result.json      the manifest's file: the upload is complete

They are used under the lock that SnapshotUpload takes. Each has a checksum: damage on the local disk must not get into
a snapshot.

    {"digest": BLAKE2b-128 of the JSON in `content`, as hex, "content": str}
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from statestore.errors import FormatError
from statestore.errors.readable import utc_text
from statestore.format.json_fields import MALFORMED
from statestore.recovery.commit.figures import SnapshotFigures
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, durable_file
from statestore.recovery.local.local_directory import discard
from statestore.recovery.location.durable_json import digest, file_digest
from statestore.recovery.location.shard_files import (
    new_snapshot_name,
    parse_snapshot_name,
    path_part,
    snapshot_directory,
)


def checked_json(content: Any) -> str:
    """Return `content` as one line of JSON with its checksum."""
    text = json.dumps(content)
    return json.dumps({"digest": digest(text.encode()), "content": text})


def parse_checked_json(text: str | bytes) -> Any:
    """Return the content of what `checked_json` gave. Raises FormatError if it is damaged."""
    try:
        fields = json.loads(text)
        content = fields["content"]
        if digest(content.encode()) != fields["digest"]:
            raise FormatError("local file", "its checksum is not that of its content")
        return json.loads(content)
    except MALFORMED as cause:
        raise FormatError("local file", f"statestore did not write {text[:100]!r}") from cause


def write_checked_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all. Not durably: its content can be made again."""
    partial = path.with_suffix(".partial")
    partial.write_text(checked_json(content), encoding="utf-8")
    os.replace(partial, path)


def read_checked_json(path: Path) -> Any:
    """Return what `write_checked_json` wrote. Raises FileNotFoundError, and FormatError if it is damaged."""
    return parse_checked_json(path.read_bytes())


TABLE: Final = ".sst"
_MAX_FAILURE_CHARS: Final = 1_000


@dataclass(frozen=True)
class UploadPlan:
    """A checkpoint of one version that waits to be uploaded."""

    copy: str
    """The name of the local copy that it was made of."""
    state_id: str
    shard: int
    version: int
    delta: str
    base: str | None
    """The manifest of the snapshot that files are shared with."""
    directory: str
    """Where in the durable location new files go."""
    entries: Mapping[str, int]
    files: Mapping[str, int]
    """The size of each file of the checkpoint."""

    def fits(self, pointer: CommitPointer) -> bool:
        """Return whether a pointer can name the snapshot: newer than all it has, of its history, base retained."""
        newest = pointer.snapshots[-1].version if pointer.snapshots else 0
        place = self.version - pointer.base_version
        written = parse_snapshot_name(self.directory)
        return (
            (self.state_id, self.shard) == (pointer.state_id, pointer.shard)
            and self.version > newest
            and 0 <= place < len(pointer.chain)
            and pointer.chain[place] == self.delta
            and (self.base is None or self.base in [snapshot.manifest.name for snapshot in pointer.snapshots[-2:]])
            and self.directory.rpartition("/")[0] == snapshot_directory(self.shard)
            and written is not None
            and written.version == self.version
        )


class PlannedSnapshot:
    """The snapshot that is under way in a shard's local directory, if any."""

    def __init__(self, shard_dir: Path) -> None:
        self.shard_dir = shard_dir
        self.checkpoint = shard_dir / "snapshot" / "checkpoint"
        self._home = shard_dir / "snapshot"
        self._plan = self._home / "plan.json"
        self._uploaded = self._home / "uploaded.jsonl"
        self._result = self._home / "result.json"
        self._digests = shard_dir / "digests.json"
        self._failures = shard_dir / "snapshot-failures"
        self._last_failure = shard_dir / "last-snapshot-failure"

    @property
    def is_there(self) -> bool:
        """Whether a snapshot was begun."""
        return self._home.exists()

    def begin(
        self,
        pointer: CommitPointer,
        epoch: int,
        copy: str,
        make_checkpoint: Callable[[str], None],
        entries: Mapping[str, int],
    ) -> UploadPlan:
        """Make a checkpoint of the local copy `copy`, which is at the version of `pointer`, and plan its upload."""
        self.clear()
        self._home.mkdir(parents=True)
        make_checkpoint(str(self.checkpoint))
        plan = UploadPlan(
            copy,
            pointer.state_id,
            pointer.shard,
            pointer.version,
            pointer.head,
            pointer.snapshots[-1].manifest.name if pointer.snapshots else None,
            new_snapshot_name(pointer.shard, pointer.version, epoch),
            dict(entries),
            self._sizes(),
        )
        write_checked_json(self._plan, asdict(plan))
        return plan

    def plan(self) -> UploadPlan | None:
        """Return the plan of what is to be uploaded, or was; None if there is none. Raises FormatError."""
        try:
            plan = UploadPlan(**read_checked_json(self._plan))
            for name in (plan.copy, plan.state_id, *plan.files):
                path_part(name)
            return plan
        except FileNotFoundError:
            return None
        except MALFORMED as damage:
            raise FormatError("plan of a snapshot", f"{self._plan} has other fields: {damage!r}") from damage

    def check_complete(self, plan: UploadPlan) -> None:
        """Raise FormatError unless the checkpoint has the files that it was made with."""
        found = self._sizes()
        if found != plan.files:
            raise FormatError("checkpoint", f"{self.checkpoint} has {len(found)} files, made with {len(plan.files)}")

    def note_upload(self, file: DurableFile) -> None:
        """Remember that a file need not be sent again."""
        with open(self._uploaded, "a", encoding="utf-8") as progress:
            progress.write(checked_json(file) + "\n")

    def uploads(self) -> Iterator[DurableFile]:
        """Yield the files that were sent already."""
        with suppress(FileNotFoundError):
            for line in self._uploaded.read_bytes().splitlines():
                # The last line of a process that was killed may be cut.
                with suppress(FormatError, *MALFORMED):
                    yield durable_file(parse_checked_json(line))

    def finish(self, manifest: DurableFile) -> None:
        """Remember that the upload is complete."""
        write_checked_json(self._result, manifest)

    def result(self) -> DurableFile | None:
        """Return the manifest's file, None if the snapshot is not complete. Raises FormatError."""
        try:
            return durable_file(read_checked_json(self._result))
        except FileNotFoundError:
            return None
        except MALFORMED as damage:
            raise FormatError("result of a snapshot", f"{self._result} has other fields: {damage!r}") from damage

    def figures(self, manifest: DurableFile) -> SnapshotFigures:
        """Return the figures of a snapshot that is complete."""
        uploaded_bytes = manifest.size_bytes + sum(file.size_bytes for file in self.uploads())
        elapsed_ns = self._result.stat().st_mtime_ns - self._plan.stat().st_mtime_ns
        return SnapshotFigures(finished=1, uploaded_bytes=uploaded_bytes, elapsed_ms=max(0, elapsed_ns) / 1e6)

    def note_failure(self, problem: str) -> None:
        """Remember a failure for `take_failures` and `last_failure`."""
        self.note_problem(problem)
        with open(self._failures, "ab") as failures:
            failures.write(b"!")

    def note_problem(self, problem: str) -> None:
        """Remember a failure for `last_failure` alone."""
        entry = f"{utc_text(time.time_ns() // 1_000_000)}: {problem}"
        self._last_failure.write_text(entry[:_MAX_FAILURE_CHARS], encoding="utf-8")

    def last_failure(self) -> str | None:
        """Return when and how it failed last on this machine, None if it never did."""
        try:
            with open(self._last_failure, encoding="utf-8", errors="replace") as file:
                return file.read(_MAX_FAILURE_CHARS)
        except FileNotFoundError:
            return None

    def take_failures(self) -> int:
        """Return how often it failed since this was last asked."""
        try:
            count = self._failures.stat().st_size
            self._failures.unlink()
        except FileNotFoundError:
            return 0
        return count

    def clear(self) -> None:
        """Give up the snapshot that is under way; what was uploaded is garbage."""
        discard(self._home)  # which renames it first: half of a checkpoint must not stand beside its plan

    def table_digests(self, plan: UploadPlan) -> dict[str, str]:
        """Return the checksum of each table of the checkpoint, by name: to recognise it, not to record it."""
        known: dict[str, str] = {}
        with suppress(FileNotFoundError, FormatError, *MALFORMED):  # then all tables are hashed again
            known = dict(read_checked_json(self._digests))
        tables = [self.checkpoint / name for name in plan.files if name.endswith(TABLE)]
        return {table.name: known.get(_identity(table)) or file_digest(table) for table in tables}

    def save_digests(self, files: Mapping[str, str]) -> None:
        """Remember the checksums of the checkpoint's tables, by name."""
        write_checked_json(self._digests, {_identity(self.checkpoint / name): check for name, check in files.items()})

    def _sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.checkpoint.iterdir())}


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
