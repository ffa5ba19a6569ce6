"""What a user gets: the wheel has both packages, their data and metadata, and nothing else of the repository."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import statestore

ROOT = Path(__file__).parents[2]
PACKAGES = ("statestore", "upgrade_tools")
METADATA = f"statestore-{statestore.__version__}.dist-info"


def built(project: Path, directory: Path, **options: Any) -> dict[str, bytes]:
    """Return wheel and source distribution of a project, built by what is installed, by the ends of their names."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(directory)]
    subprocess.run(build, cwd=project, check=True, capture_output=True, **options)
    return {path.suffix: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return built(ROOT, tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="module")
def wheel(distributions: dict[str, bytes]) -> dict[str, bytes]:
    """The wheel's files."""
    with zipfile.ZipFile(io.BytesIO(distributions[".whl"])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    return message_from_bytes(wheel[f"{METADATA}/METADATA"])


def test_it_has_the_packages_and_nothing_else(wheel: dict[str, bytes]) -> None:
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    there = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    packed = {name for name in wheel if not name.startswith(f"{METADATA}/")}
    assert packed == there
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed


def test_it_is_the_same_bytes_from_another_directory_at_another_time(
    distributions: dict[str, bytes], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".gitignore", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    for path in copy.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1, 1_000_000_000))
    assert built(copy, tmp_path / "built", umask=0o077, env={"TZ": "Asia/Tokyo"}) == distributions


def test_it_brings_its_commands_and_its_licence(wheel: dict[str, bytes], metadata: Message) -> None:
    entry_points = wheel[f"{METADATA}/entry_points.txt"].decode()
    assert "[console_scripts]\nupgrade-tools = upgrade_tools.__main__:run\n" in entry_points
    assert "[pytest11]\nstatestore = statestore.testing.pytest_plugin\n" in entry_points
    assert metadata["License-Expression"] == "Apache-2.0"
    assert wheel[f"{METADATA}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_its_page_in_a_registry_is_the_readme(metadata: Message) -> None:
    assert metadata["Version"] == statestore.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload(decode=True)
    assert isinstance(description, bytes)
    assert description.decode() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_changelog_has_the_release_that_this_is() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+)\](?: - \d{4}-\d\d-\d\d)?$", changelog, re.M)
    assert headings[:2] == ["Unreleased", statestore.__version__]
