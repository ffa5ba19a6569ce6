"""Writes tests/golden/rescaled-N: a rescaled state's location as the formats of metadata and initial pointers were.

Run once for each format, never again for one that was released: `python -m tests.support.golden.rescaled DIRECTORY`.
rescaled-2 is of shards that had seen different times: `python -m tests.support.golden.rescaled DIRECTORY earlier`.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.recovery.rescaling import States, every_kind

KEYS = ("a", "c", "d", "f")


def make(home: Path) -> None:
    """Make a state of one shard that has become one of two."""
    states = States(home, every_kind(), 1)
    states.put_globally("eur", "1.1")
    states.put_everywhere({key: 20 + number for number, key in enumerate(KEYS)})
    states.rescaled(2, trust_keys=True)


def make_with_earlier(home: Path) -> None:
    """Make a state of two shards that had seen different times, and have become one."""
    states = States(home, every_kind(), 2)
    states.put_everywhere({key: 20 + 100 * states.shard_of(key) for key in KEYS})
    for shard, time_ms in enumerate((20, 120)):
        numbers = {"w-observed-stream-time": time_ms, "w-ends": time_ms + 10}
        states.run(shard, lambda stores: None, time_ms=time_ms, processor_metadata=numbers)
    states.rescaled(1)


def main(directory: Path, makes: Callable[[Path], None]) -> None:
    """Write a state."""
    with tempfile.TemporaryDirectory() as home:
        makes(Path(home))
        shutil.copytree(Path(home, "new"), directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), make_with_earlier if sys.argv[2:] == ["earlier"] else make)
