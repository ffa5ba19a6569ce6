"""`statestore.store.json` in a database's directory: what kind of store is in it, as a StoreSpec in JSON.

Kafka Streams keeps no such record: a versioned store's database has the column families of a plain key-value store, and
opens as one without complaint. A database without a record is what its first opening says it is; from then on the
record says so. Kafka Streams does not look at the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from statestore.bytestore.kafka_streams.layout import RECORD_FILE
from statestore.bytestore.kinds.families import older_formats
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.upgrades.opening import downgrade_remedy, is_downgrade, refuse_skipped_step
from statestore.errors import FormatError, StoreError, StoreFormatError

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
            "what you ask for, delete that file and open the store again; otherwise delete the local state and restore "
            "the store from its changelog",
        ) from cause


def write_record(database: Path, spec: StoreSpec) -> None:
    """Record `spec` in the directory `database`: afterwards there is the old record or the new one, nothing between."""
    written = database / f"{RECORD_FILE}.tmp"
    with open(written, "wb") as file:
        file.write(json.dumps(spec.to_json()).encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, database / RECORD_FILE)


def refuse_other_kind(recorded: StoreSpec, spec: StoreSpec, where: Path, name: str) -> None:
    """Raise StoreFormatError if `spec` would read the bytes of the recorded store as something that they are not.

    An older format is no obstacle where it may be upgraded: see `refuse_skipped_step`. The retention may change; names
    are not compared, so a directory may be given to a store of another name.
    """
    if _layout(recorded) == _layout(spec) and recorded.format in (spec.format, *older_formats(spec.kind, spec.format)):
        refuse_skipped_step(recorded.format, spec, str(where), name)
        return
    remedy = "Open it as what is recorded, or delete the local state and restore the store from its changelog"
    raise StoreFormatError(
        name,
        recorded=recorded.describe(),
        asked=spec.describe(),
        where=str(where),
        remedy=downgrade_remedy(spec)
        if _layout(recorded) == _layout(spec) and is_downgrade(recorded, spec)
        else remedy,
    )


def _layout(spec: StoreSpec) -> tuple[object, ...]:
    return spec.kind, spec.segment_interval_ms, spec.window_size_ms, spec.retain_duplicates
