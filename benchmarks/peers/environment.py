"""What is installed for this benchmark alone, apart from the project: Quix Streams, and what draws the plot.

Both are locked in environment.lock, with checksums; `make lock` writes it from environment.in. They are not in the
project's own environment, whose versions of what they share Quix would decide.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers.failure import PeerError, tail

LOCK: Final = Path(__file__).with_name("environment.lock")
_INSTALL_TIMEOUT_S: Final = 900


def environment_python(directory: Path) -> Path:
    """Return the Python of the environment in `directory`, which is made if it is not there or another lock's.

    Raises PeerError if it can't be made.
    """
    python = directory / "bin" / "python"
    installed = directory / "installed"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not installed.is_file() or installed.read_text() != digest:
        print(f"installing {LOCK.name} into {directory} (once, about a minute) ...", flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(directory)])
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "install", "--require-hashes", "-r", str(LOCK)])
        installed.write_text(digest)
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise PeerError(f"the environment was not installed in {_INSTALL_TIMEOUT_S} s", output="") from exc
    if done.returncode != 0:
        raise PeerError("the environment can't be installed", output=tail(done.stdout))
