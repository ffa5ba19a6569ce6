"""Runs files and folders of Kafka Connect vectors on ours: `python tests/support/connect_vectors.py FILE_OR_FOLDER...`.

Prints each failure in a line and then how many vectors passed, `N of M`. The status is 1 if one failed, 2 if there are
no vectors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    # Not this script's own folder, which has packages named as others are, but what it is a part of.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.support.connect.running import NoVectorsError, failure_of, vectors_of

DEEPEST = 20_000
"""Frames, for vectors whose JSON nests deeper than Python allows by itself."""


def main(paths: list[str]) -> int:
    """Run vectors, and return the status to end with."""
    if not paths:
        print("usage: python tests/support/connect_vectors.py FILE_OR_FOLDER...", file=sys.stderr)
        return 2
    sys.setrecursionlimit(DEEPEST)
    passed = count = 0
    try:
        for path in paths:
            for vector in vectors_of(Path(path)):
                failure = failure_of(vector)
                count += 1
                passed += failure is None
                if failure is not None:
                    print(f"{vector.id}: {failure}")
    except (NoVectorsError, OSError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{passed} of {count}")
    return 0 if passed == count else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
