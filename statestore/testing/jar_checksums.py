"""The checksums of the jars that tests and demos run: what stands in `jars.sha256` is what is run, and nothing else.

    line := sha256:hex[64] "  " jar_set "/" jar

as `sha256sum` has it, so that a directory of sets can be checked with that as well. The file is the only record. It is
written anew by `python -m statestore.testing.jars --record`, when a version moves; what has changed shows in its diff.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from statestore.errors.harness import JarChecksumError

RECORD: Final = Path(__file__).with_name("jars.sha256")
_CHUNK_BYTES: Final = 1 << 20


def checksums_of(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar in a directory, by its name."""
    return {path.name: _checksum(path) for path in sorted(directory.glob("*.jar"))}


def check_jars(jar_set: str, directory: Path) -> None:
    """Raise JarChecksumError for a jar in `directory` that is not as recorded of the set, is missing or too many."""
    expected, found = read_record().get(jar_set, {}), checksums_of(directory)
    for jar in sorted(expected.keys() | found.keys()):
        if expected.get(jar) != found.get(jar):
            raise JarChecksumError(
                jar, jar_set=jar_set, directory=str(directory), expected=expected.get(jar), found=found.get(jar)
            )


def read_record() -> dict[str, dict[str, str]]:
    """Return what is recorded: checksums by jar, by set."""
    sets: dict[str, dict[str, str]] = {}
    for line in RECORD.read_text(encoding="ascii").splitlines():
        checksum, _, path = line.partition("  ")
        jar_set, _, jar = path.partition("/")
        sets.setdefault(jar_set, {})[jar] = checksum
    return sets


def write_record(sets: Mapping[str, Path]) -> None:
    """Record the jars of all sets, each in its directory, as they are now."""
    lines = (
        f"{checksum}  {jar_set}/{jar}\n"
        for jar_set, directory in sorted(sets.items())
        for jar, checksum in checksums_of(directory).items()
    )
    RECORD.write_text("".join(lines), encoding="ascii")


def _checksum(path: Path) -> str:
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return hashed.hexdigest()
