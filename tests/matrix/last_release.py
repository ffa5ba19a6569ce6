"""`python -m tests.matrix.last_release`: queries of the last release go on with this one, and back: docs/upgrading.md.

The last release is the last tag. Where a clone has no tag, the golden states of earlier formats stand in for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ("state", "checkpoint")
GOLDEN: Final = ("tests/recovery/test_golden_state.py", "tests/upgrade/test_migrate_golden.py")


def main() -> int:
    """Go there and back; return 0 if each step came to what the page says."""
    tag = _git("describe", "--tags", "--abbrev=0").decode().strip()
    if not tag:
        print("no tag is here: golden states of earlier formats stand in for the last release", flush=True)
        return subprocess.run([sys.executable, "-m", "pytest", "-q", *GOLDEN], cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="statestore-releases-") as directory:
        home, old = Path(directory, "home"), Path(directory, "old")
        _install(tag, old)
        is_right = _there_and_back(tag, old, home)
    print(f"{tag} to this release and back is {'right' if is_right else 'WRONG: see above'}", flush=True)
    return 0 if is_right else 1


def _there_and_back(tag: str, old: Path, home: Path) -> bool:
    if not _step(f"{tag} starts, and is killed in its second batch", old, home, 1, "--killed", code=-signal.SIGKILL):
        return False
    copy = home.parent / "copy"
    shutil.copytree(home, copy)
    if not (
        _step("this release goes on, and runs that batch again", ROOT, home, 2)
        and _step(f"{tag} goes on from there, or refuses in words", old, home, 3, refusal="CommitPointerError: ")
        and _step("this release goes on all the same", ROOT, home, 3)
    ):
        return False
    for kept in (path for query in copy.iterdir() for path in query.iterdir() if path.name in KEPT):
        gone = home / kept.relative_to(copy)
        shutil.rmtree(gone)
        kept.rename(gone)
    return _step(f"{tag} goes on from the copies", old, home, 3)


def _step(what: str, release: Path, home: Path, leg: int, *options: str, code: int = 0, refusal: str = "") -> bool:
    """Run a leg with a release, and return whether it was that one, and ended with a code, or refused."""
    started = time.monotonic()
    home.mkdir(exist_ok=True)
    paths = (release, ROOT, ROOT / "docs" / "examples")
    done = subprocess.run(
        [sys.executable, "-m", "tests.matrix.one_checkpoint", str(home), str(leg), *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=home,  # which comes first on Python's path, and has no statestore
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    lines = [line for line in done.stderr.splitlines() if refusal and refusal in line]
    is_right = f"statestore of {release}\n" in done.stdout and (done.returncode == code or bool(lines))
    print(f"{'   ' if is_right else 'NOT'} {what}: {time.monotonic() - started:.0f} s", flush=True)
    for line in lines[:1] if is_right else (done.stdout, done.stderr):
        print(f"        {line}", flush=True)
    return is_right


def _install(tag: str, directory: Path) -> None:
    """Install a release as its wheel would be, beside what it needs, which is that of this Python."""
    with tempfile.TemporaryDirectory() as source:
        subprocess.run(["tar", "-x", "-C", source], input=_git("archive", tag), check=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", str(directory), source], check=True)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
