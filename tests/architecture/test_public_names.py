"""What is public is listed, and what is listed is there."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["statestore", "statestore.spark", "statestore.testing"])
def test_all_is_sorted_and_complete(name: str) -> None:
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])
    assert list(listed) == sorted(listed)
    for public in listed:
        assert getattr(module, public).__doc__, f"{name}.{public} has no docstring"


def test_the_core_does_not_import_spark() -> None:
    code = "import statestore, sys; print([m for m in ('pyspark', 'pandas') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
