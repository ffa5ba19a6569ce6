"""Writes tests/golden/rescaled-N: a rescaled state's location as the formats of metadata and initial pointers were.

Run once for each format, never again for one that was released: `python -m tests.support.golden.rescaled DIRECTORY`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.recovery.rescaling import States, every_kind

KEYS = ("a", "c", "d", "f")


def main(directory: Path) -> None:
    """Write a state of one shard that has become one of two."""
    with tempfile.TemporaryDirectory() as home:
        states = States(Path(home), every_kind(), 1)
        states.put_globally("eur", "1.1")
        states.put_everywhere({key: 20 + number for number, key in enumerate(KEYS)})
        states.rescaled(2, trust_keys=True)
        shutil.copytree(Path(home, "new"), directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
