"""How fast stores are migrated, verified and put in their place: entries a second of one core.

`python benchmarks/migration.py [ENTRIES]`. A key-value store in Kafka Streams' layout with keys of 20 bytes and values
of 30, and a window store of the same over ten segments, go to the newest format in place; the key-value store goes to a
state location, too. The time is the CPU's, of all threads of the process, so what else the machine does is not in it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.bytestore.protocol import ByteStore, Change
from statestore.format.keys.window_key import encode_window_key
from statestore.format.values.store_format import StoreFormat
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout

RESULTS: Final = Path(__file__).parent / "results" / "migration.json"
ENTRIES: Final = 1_000_000
SEGMENTS: Final = 10
INTERVAL_MS: Final = 3_600_000
TARGET_A_SECOND: Final = 150_000
TIMESTAMP: Final = (1_700_000_000_000).to_bytes(8, "big")
TOTALS: Final = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
VISITS: Final = StoreSpec(
    "visits", StoreKind.WINDOW, StoreFormat.TIMESTAMPED, SEGMENTS * INTERVAL_MS, INTERVAL_MS, 60_000
)


def values(entries: int) -> Iterator[bytes]:
    """Yield values of 30 bytes behind a timestamp, that do not compress."""
    random_bytes = random.Random(1).randbytes
    for _ in range(entries):
        yield TIMESTAMP + random_bytes(30)


def totals(entries: int) -> Iterator[Change]:
    """Yield entries with keys of 20 bytes."""
    for number, value in enumerate(values(entries)):
        yield b"customer-%011d" % number, value


def visits(entries: int) -> Iterator[Change]:
    """Yield windows of as long keys, in segments one after the other."""
    for number, value in enumerate(values(entries)):
        segment_id = number * SEGMENTS // entries
        key = encode_window_key(b"%08d" % number, segment_id * INTERVAL_MS)
        yield segment_prefix(segment_id) + key, value


def made(task: Path, spec: StoreSpec, changes: Iterator[Change]) -> Path:
    """Write a store as Kafka Streams leaves it."""
    with TaskDirectory(task, "benchmark") as directory:
        store: ByteStore = directory.open_store(spec)
        store.write(changes)
        directory.commit(spec.name, 7, {"orders": {0: 7}})
    return task


def measured(entries: int, work: Callable[[], object]) -> dict[str, float]:
    """Return entries a second, of a core and by the clock."""
    cpu_s, clock_s = time.process_time(), time.perf_counter()
    work()
    return {
        "entries_per_core_s": entries / (time.process_time() - cpu_s),
        "entries_per_s": entries / (time.perf_counter() - clock_s),
    }


def main(entries: int) -> None:
    """Measure, print and record."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for spec, kind, changes in ((TOTALS, StoreType.TS_KV, totals), (VISITS, StoreType.TS_WINDOW, visits)):
            task = made(home / spec.name / "0_0", spec, changes(entries))
            location = MigrationRequest(
                str(task), str(home / "state" / spec.name), layout=TargetLayout.LOCATION, to=TargetFormat.HEADERS
            )
            in_place = MigrationRequest(str(task), to=TargetFormat.HEADERS, discard_backup=True)
            found[f"{kind.value} to headers, to a location"] = measured(
                entries, lambda request=location: migrate(request)
            )
            found[f"{kind.value} to headers, in place"] = measured(entries, lambda request=in_place: migrate(request))
    for name, figures in found.items():
        print(
            f"{name}: {figures['entries_per_core_s']:,.0f}/s of a core, {figures['entries_per_s']:,.0f}/s by the clock"
        )
    RESULTS.write_text(json.dumps({"entries": entries, "found": found}, indent=2) + "\n", encoding="utf-8")
    missed = [name for name, figures in found.items() if figures["entries_per_core_s"] < TARGET_A_SECOND]
    print(f"target {TARGET_A_SECOND:,}/s: {f'missed by {missed}' if missed else 'met'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES)
