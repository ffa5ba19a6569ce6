"""A library that is not installed is said in one sentence; so is the extra that brings it."""

import subprocess
import sys

import pytest

from statestore.errors.middleware import ExtraMissingError
from statestore.middleware.application import extra

LIBRARIES = (
    *("confluent_kafka", "fastavro", "msgpack", "opentelemetry", "cryptography", "zstandard", "jwt", "cedarpy"),
    *("prometheus_client", "boto3", "hvac"),
)


def test_a_missing_library_names_its_extra() -> None:
    with pytest.raises(ExtraMissingError) as raised, extra("compression"):
        import no_such_library.frames  # type: ignore[import-not-found]  # noqa: F401
    assert str(raised.value) == "no_such_library is not installed: pip install 'statestore[compression]'"
    assert (raised.value.module, raised.value.extra) == ("no_such_library", "compression")


def test_importing_middleware_imports_no_extra() -> None:
    run = [sys.executable, "-c", "import statestore, statestore.middleware, sys; print(*sys.modules)"]
    imported = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in LIBRARIES if name in imported} == set()
