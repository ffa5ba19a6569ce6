"""The environments that the matrix runs in: one for each Spark, each with a Python and a pandas of its own.

They are made below build/matrix by uv, of what pyproject.toml asks for, and kept until that, the lock or what is asked
for here changes. All but Spark and pandas have the versions of requirements.lock. The Spark of the lock has the tests'
own environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import requires, version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_LOCK: Final = ROOT / "requirements.lock"
_PROJECT: Final = ROOT / "pyproject.toml"
_CHOSEN: Final = ("pyspark", "pandas")
VERSIONS: Final = ("Python", "pandas", "PyArrow", "Kafka connector")
"""What the page says of each environment."""


class InstallError(Exception):
    """An environment can't be made."""


@dataclass(frozen=True)
class Environment:
    """One Spark, and what it is run with."""

    spark: str
    python: str
    """The Python that is asked for; if it is not on this machine, that of the tests is taken."""
    pandas: str
    warnings: tuple[str, ...] = ()
    """What pytest is not to make an error of, beside what the project ignores."""
    is_client: bool = False
    """Whether it has a client of Spark Connect alone, without Spark itself and what starts Java."""

    @property
    def release(self) -> str:
        """Return the first two numbers of the version of Spark."""
        return self.spark.rpartition(".")[0]

    @property
    def is_own(self) -> bool:
        """Return whether it is the environment that this runs in."""
        return self.spark == version("pyspark") and not self.is_client

    @property
    def directory(self) -> Path:
        """Return where the environment is, or will be."""
        if self.is_own:
            return Path(sys.prefix)
        return ROOT / "build" / "matrix" / (f"{self.release}-client" if self.is_client else self.release)

    @property
    def interpreter(self) -> Path:
        """Return its Python."""
        return self.directory / "bin" / "python"

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments, and these variables beside all others, what it says kept."""
        return subprocess.run(
            [str(self.interpreter), *arguments],
            env=self._variables() | variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def install(self) -> None:
        """Make the environment, if it is not there as it is asked for."""
        stamp = self.directory / ".installed"
        asked_for = repr((self, self._packages())).encode()
        wanted = hashlib.sha256(asked_for + _PROJECT.read_bytes() + _LOCK.read_bytes()).hexdigest()
        if self.is_own or (stamp.is_file() and stamp.read_text() == wanted):
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory() as elsewhere,  # in the project, uv would keep to the Spark of its lock
            # Registries that do not say how long a file is fresh make uv build Spark again, and keep 1.3 GB each time.
            tempfile.TemporaryDirectory(dir=self.directory.parent, prefix="cache-") as cache,
        ):
            others = Path(elsewhere, "constraints.txt")
            others.write_text("".join(f"{line}\n" for line in _locked()))
            into = ("--python", str(self.interpreter))
            for arguments in (
                ("venv", "--python", _interpreter(self.python), str(self.directory)),
                ("pip", "install", *into, "--constraint", str(others), *self._packages()),
            ):
                done = subprocess.run(
                    [sys.executable, "-m", "uv", "--quiet", *arguments],
                    cwd=elsewhere,
                    check=False,
                    # A large download from a slow registry is no reason to give up.
                    env={"UV_HTTP_TIMEOUT": "180"} | os.environ | {"UV_CACHE_DIR": cache},
                )
                if done.returncode:
                    raise InstallError(
                        f"Spark {self.spark} can't be installed into {self.directory}: uv says above why"
                    )
        stamp.write_text(wanted)

    def versions(self) -> dict[str, str]:
        """Return the versions of what is there, as the page names it."""
        program = (
            "import platform, pandas, pyarrow; from statestore.testing.jars import connector_jars;"
            "name = next(jar.name for jar in connector_jars() if jar.name.startswith('spark-sql-kafka'));"
            "print(platform.python_version(), pandas.__version__, pyarrow.__version__, name[:-4].rpartition('-')[2])"
        )
        found = self.run("-c", program)
        if found.returncode:
            raise RuntimeError(f"the environment {self.directory} does not work:\n{found.stderr}")
        return dict(zip(VERSIONS, found.stdout.split(), strict=True))

    def _packages(self) -> tuple[str, ...]:
        pandas = f"pandas{self.pandas}"
        if self in ENVIRONMENTS:
            return ("--editable", f"{ROOT}[dev]", f"pyspark=={self.spark}", pandas)
        # statestore asks for all of a Spark that it runs with: this is what else it asks for.
        needs = [need for need in requires("statestore") or () if "extra ==" not in need]
        others = [need for need in needs if not need.startswith("pyspark")]
        spark = "pyspark-client" if self.is_client else "pyspark"
        return ("pytest", "confluent-kafka", f"{spark}=={self.spark}", pandas, *others)

    def _variables(self) -> dict[str, str]:
        paths = os.pathsep.join((str(ROOT), str(ROOT / "docs" / "examples")))
        return os.environ | {
            "PYSPARK_PYTHON": str(self.interpreter),
            "PYSPARK_DRIVER_PYTHON": str(self.interpreter),
            "PYTHONPATH": paths,
        }


_LEAKS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""A socket that pyspark leaves open before 4.2."""

ENVIRONMENTS: Final = (
    Environment("4.0.5", "3.10", "<3", _LEAKS),
    Environment("4.1.4", "3.12", "<3", _LEAKS),
    Environment("4.2.0", "3.11", "<3"),
    # pyspark warns of pandas 3 wherever it meets it.
    Environment("4.3.0", "3.13", ">=3", ("ignore:PySpark does not yet fully support pandas:FutureWarning",)),
)
TOO_OLD: Final = Environment("3.5.9", "3.10", "<3")
"""The last Spark that is refused."""

CLIENT: Final = Environment("4.2.0", "3.11", "<3", is_client=True)


def _locked() -> Iterator[str]:
    """Yield what the lock pins, without hashes, and without what is chosen here."""
    for line in _LOCK.read_text(encoding="utf-8").splitlines():
        pinned = line.removesuffix("\\").strip()
        if "==" in pinned and line[:1].isalnum() and pinned.partition("==")[0] not in _CHOSEN:
            yield pinned


def _interpreter(version: str) -> str:
    """Return the Python of that version that is on this machine, or the one that runs this."""
    variables = dict(os.environ)
    if shutil.which("pyenv"):  # it keeps those that nobody has chosen off the path
        prefix = _said_by("pyenv", "prefix", version)
        variables["PATH"] = os.pathsep.join((f"{prefix}/bin", variables["PATH"])) if prefix else variables["PATH"]
    find = (sys.executable, "-m", "uv", "python", "find", "--no-project", "--no-python-downloads", version)
    return _said_by(*find, variables=variables) or sys.executable


def _said_by(*command: str, variables: Mapping[str, str] | None = None) -> str:
    """Return what a command prints, or nothing if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return done.stdout.strip() if done.returncode == 0 else ""
