"""One database of a store in a task's directory: a whole store, or one segment of a window or session store.

`statestore.store.json` in it says what kind of store it is, as a StoreSpec in JSON; the first opening writes it. Kafka
Streams ignores it, and opens a versioned store's database as a plain one without complaint.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBByteStore, RocksDBDatabase, list_families
from statestore.bytestore.kafka_streams.layout import (
    OFFSETS_FAMILY,
    POSITION_KEY,
    RECORD_FILE,
    STATUS_CLOSED,
    STATUS_KEY,
    STATUS_OPEN,
    changelog_of,
    column_family,
    known_families,
    offset_key,
)
from statestore.bytestore.kinds.store_spec import StoreSpec, older_formats
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import (
    downgrade_remedy,
    is_downgrade,
    open_store,
    refuse_downgrade,
    refuse_skipped_step,
)
from statestore.errors import FormatError, StoreError, StoreFormatError
from statestore.errors.state import UnknownColumnFamilyError
from statestore.format.offset_checkpoint import TopicPartition
from statestore.format.position import (
    OFFSET_UNKNOWN,
    Position,
    decode_long,
    decode_position,
    encode_long,
    encode_position,
)

_LIMIT_BYTES = 4096


def read_record(database: Path, name: str) -> StoreSpec | None:
    """Return what is recorded of a database's store, None if nothing is. Raises StoreError if it can't be read."""
    path = database / RECORD_FILE
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if len(data) > _LIMIT_BYTES:
            raise FormatError("recorded store", f"longer than {_LIMIT_BYTES} bytes")
        return StoreSpec.from_json(json.loads(data))
    except (FormatError, ValueError, RecursionError) as cause:
        raise StoreError(
            name,
            f"{path} is damaged ({cause}), so it is not known what kind of store this is. If you are sure that it is "
            "the kind you ask for, delete that file and open the store again; otherwise delete the local state and "
            "restore the store from its changelog",
        ) from cause


def write_record(database: Path, spec: StoreSpec) -> None:
    """Record `spec` in the directory `database`, atomically."""
    written = database / f"{RECORD_FILE}.tmp"
    with open(written, "wb") as file:
        file.write(json.dumps(spec.to_json()).encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, database / RECORD_FILE)


def refuse_other_kind(recorded: StoreSpec, spec: StoreSpec, where: Path, name: str) -> None:
    """Raise StoreFormatError if `spec` would misread the bytes of the recorded store.

    An older format is fine if it may be upgraded: see `refuse_skipped_step`. The retention may change; names are not
    compared, so a directory may be given to a store of another name.
    """
    laid_out_as_asked = _layout(recorded) == _layout(spec)
    if laid_out_as_asked and recorded.format in (spec.format, *older_formats(spec.kind, spec.format)):
        refuse_skipped_step(recorded.format, spec, str(where), name)
        return
    remedy = "Open it as what is recorded, or delete the local state and restore the store from its changelog"
    if laid_out_as_asked and is_downgrade(recorded, spec):
        remedy = downgrade_remedy(spec)
    found, asked = recorded.describe(), spec.describe()
    raise StoreFormatError(name, recorded=found, asked=asked, where=str(where), remedy=remedy)


def _layout(spec: StoreSpec) -> tuple[object, ...]:
    return spec.kind, spec.segment_interval_ms, spec.window_size_ms, spec.retain_duplicates


@dataclass
class Committed:
    """What a store has noted: the offset of the last changelog record it holds, and its input position."""

    changelog_offset: int = OFFSET_UNKNOWN
    position: Position = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedOffsets:
    """What the family `offsets` of a database says."""

    changelogs: Mapping[TopicPartition, int | None]
    """The offset of the last record of each changelog that is in the database, None if it is unknown."""
    position: Position
    is_closed: bool | None  # whether it was closed cleanly; None if that is not recorded


def recorded_offsets(family: ByteStore) -> RecordedOffsets:
    """Return what the family `offsets` of a database says. Raises FormatError."""
    changelogs: dict[TopicPartition, int | None] = {}
    position: Position = {}
    is_closed = None
    for key, value in family.range(None, None):
        if key == STATUS_KEY:
            is_closed = decode_long("status", value) == STATUS_CLOSED
        elif key == POSITION_KEY:
            position = decode_position(value)
        elif (changelog := changelog_of(key)) is not None:
            offset = decode_long("changelog offset", value)
            changelogs[changelog] = None if offset == OFFSET_UNKNOWN else offset
    return RecordedOffsets(changelogs, position, is_closed)


def check_database(path: Path, spec: StoreSpec, name: str) -> list[str]:
    """Return the column families in the directory `path`, none if there is no database; nothing is changed.

    `name` is the store's, or its segment's, in errors. Raises StoreFormatError if another kind of store is recorded
    there or it is in a newer format, and UnknownColumnFamilyError.
    """
    recorded = read_record(path, name)
    if recorded is not None:
        refuse_other_kind(recorded, spec, path, name)
    present = list(list_families(str(path)))
    refuse_downgrade(present, spec, partial(column_family, spec), str(path), name)
    known = known_families(spec)
    unknown = [family for family in present if family not in known]
    if unknown:
        raise UnknownColumnFamilyError(name, path=str(path), asked=spec.describe(), unknown=unknown, known=known)
    return present


class StoreDatabase:
    """An open database; `present` is what `check_database` returned of it.

    Until `begin` its content is as it was, and `abandon` drops the column families that were added. Raises
    StoreFormatError if it has entries in two older formats, and StoreError if its family `offsets` is damaged.
    """

    store: ByteStore  # the entries

    def __init__(
        self,
        path: Path,
        spec: StoreSpec,
        name: str,
        changelog: TopicPartition,
        present: Sequence[str],
        *,
        compacting: bool = True,
    ) -> None:
        self._path = path
        self._spec = spec
        self._name = name
        self._changelog = changelog
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only this directory has what is written here, so it must survive the death of the process.
        families = [column_family(spec), OFFSETS_FAMILY]
        self._database = RocksDBDatabase(str(path), families, write_ahead_log=True, compacting=compacting)
        self._created = set(self._database.families) - {*present, DEFAULT_FAMILY}
        try:
            self.store = open_store(
                self._database,
                spec,
                partial(column_family, spec),
                name,
                # Kafka Streams may have begun it: it does so without being asked.
                begins_upgrade=column_family(spec) in self._created,
            )
            self._offsets: RocksDBByteStore = self._database.family(OFFSETS_FAMILY, name)
            self.was_closed_cleanly, self.committed = self._read_committed()
        except BaseException:
            self.abandon()
            raise

    def begin(self, committed: Committed) -> None:
        """Record what kind of store this is, and that it is open."""
        if read_record(self._path, self._name) != self._spec:
            write_record(self._path, self._spec)
        self.commit(committed)

    def commit(self, committed: Committed) -> None:
        """Note what the store holds."""
        self._write(STATUS_OPEN, committed)

    def flush(self) -> None:
        """Force to disk what was written."""
        self._database.flush()

    def close(self, committed: Committed, *, cleanly: bool) -> None:
        """Note what the store holds, and whether there is nothing else in it; release the lock."""
        try:
            self._write(STATUS_CLOSED if cleanly else STATUS_OPEN, committed)
        finally:
            self._database.close()

    def abandon(self) -> None:
        """Close the database as it was before it was opened."""
        try:
            for family in self._created:
                self._database.drop_family(family)
        finally:
            self._database.close()

    def remove(self) -> None:
        """Close the database and delete its directory. If the process dies meanwhile, it is whole or empty."""
        self._database.close()
        # Everything is in tables now. Without `CURRENT` RocksDB makes a new database, but not if there is a log.
        for log in self._path.glob("*.log"):
            log.unlink()
        (self._path / "CURRENT").unlink()
        shutil.rmtree(self._path)

    def _read_committed(self) -> tuple[bool, Committed]:
        try:
            recorded = recorded_offsets(self._offsets)
        except FormatError as cause:
            raise StoreError(
                self._name,
                f"column family {OFFSETS_FAMILY!r} in {self._path} is damaged ({cause}). Delete the local state, and "
                "restore the store from its changelog",
            ) from cause
        offset = recorded.changelogs.get(self._changelog)
        committed = Committed(OFFSET_UNKNOWN if offset is None else offset, recorded.position)
        return recorded.is_closed is not False, committed

    def _write(self, status: int, committed: Committed) -> None:
        offset, position = encode_long(committed.changelog_offset), encode_position(committed.position)
        places = (STATUS_KEY, offset_key(self._changelog), POSITION_KEY)
        self._offsets.write(zip(places, (encode_long(status), offset, position), strict=True))
