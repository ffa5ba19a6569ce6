"""What a test needs is marked, or the test fails; and `make test-fast` runs nothing that needs Spark or Java."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import SLOW
from tests.support.needs import TESTS as FOLDER

TESTS = """
import importlib, subprocess, pytest

@pytest.fixture
def java():
    return "java"

@pytest.fixture
def broker(java):
    return None

def test_nothing():
    pass

def test_an_import():
    importlib.import_module("pyspark.cloudpickle")

def test_java():
    subprocess.run(["java", "-version"])

def test_java_by_a_fixture(java):
    with pytest.raises(OSError):
        subprocess.run(["/nowhere/java"])

def test_java_by_a_fixture_of_a_fixture(broker):
    with pytest.raises(OSError):
        subprocess.run(["/nowhere/java"])

def test_a_script_that_stands_in_for_java(tmp_path):
    script = tmp_path / "java"
    script.write_text("#!/bin/sh\\nexit 0\\n")
    script.chmod(0o755)
    assert subprocess.run([str(script)]).returncode == 0
"""


def outcomes(directory: Path, *options: str) -> dict[str, str]:
    (directory / "test_it.py").write_text(TESTS)
    plugin = "tests.support.needs"
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:cacheprovider", "-rA", *options, "test_it.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env={"PYTHONPATH": ":".join(sys.path)}
    )
    lines = [line.split(" - ")[0].split() for line in done.stdout.splitlines() if "test_it.py::test_" in line]
    return {line[1].partition("::")[2]: line[0] for line in lines if line[0] in ("PASSED", "FAILED")}


@pytest.mark.parametrize(
    ("options", "failed", "left_out"),
    [
        ((), {"test_java"}, set()),
        (
            ("--fast",),
            {"test_java", "test_an_import"},
            {"test_java_by_a_fixture", "test_java_by_a_fixture_of_a_fixture"},
        ),
    ],
    ids=["all", "fast"],
)
def test_who_needs_what_it_does_not_ask_for_fails(
    tmp_path: Path, options: tuple[str, ...], failed: set[str], left_out: set[str]
) -> None:
    found = outcomes(tmp_path, *options)
    assert {name for name, outcome in found.items() if outcome == "FAILED"} == failed
    every = {line.split("(")[0].removeprefix("def ") for line in TESTS.splitlines() if line.startswith("def test_")}
    assert every - set(found) == left_out


def test_what_is_fast_can_be_collected_without_pyspark() -> None:
    command = [sys.executable, "-m", "pytest", "--fast", "--collect-only", "-q", "-p", "no:cacheprovider", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parent)
    assert done.returncode == 0, done.stdout[-2000:]


def test_what_is_named_as_slow_is_there() -> None:
    assert [name for name in SLOW if not (FOLDER / name).exists()] == []
