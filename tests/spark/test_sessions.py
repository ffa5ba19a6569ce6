"""What a client of Spark Connect needs to have, and what comes back of what it asks for; without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import statestore
from statestore.errors import InputError, ShardCountChangedError, StateStoreError, TopologyChangedError, TopologyError
from statestore.errors.run import ConnectServerError, NullKeyError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.spark.query_failure import AS_A_VALUE, failure_from, failure_json, raise_from
from statestore.spark.sessions import _result, _task, choose_python, location_in, on_server
from statestore.spark.start_refusal import relation_of

CONNECT: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
IMPORTS = """
import importlib, pkgutil, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "py4j" or name in ("pyspark.core", "pyspark.java_gateway"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, NotInstalled())
import statestore.spark
for module in pkgutil.walk_packages(statestore.spark.__path__, "statestore.spark."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""


def test_the_client_package_of_spark_is_enough_to_import_all() -> None:
    # Without its core, pyspark takes itself for the package that has no Java.
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "statestore.spark.query_settings" in done.stdout


def through_a_task(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a client gets of a function, without the server between them."""
    (batch,) = _task(cloudpickle.dumps((function, args, {})))(iter([pa.record_batch([[1]], names=["id"])]))
    return _result(json.loads(batch.column("said")[0].as_py()))


def raising(error: Exception) -> Any:
    raise error


def test_what_a_task_returns_comes_as_data() -> None:
    assert through_a_task(relation_of, "s3://b/x", "s3://b/x/y") == "has within it"
    assert through_a_task(lambda: {"a": (1, None)}) == {"a": [1, None]}


@pytest.mark.parametrize(
    "error",
    [
        ShardCountChangedError("s3://bucket/state", recorded=3, asked=2),
        TopologyChangedError("s3://bucket/state", differences=["x"] * 100, remedy="Undo it " * 1000),
        ValueError("no such store"),
    ],
)
def test_an_error_of_a_task_is_raised_as_it_was(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        through_a_task(raising, error)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_an_error_without_a_public_name_is_raised_as_its_base() -> None:
    with pytest.raises(InputError) as caught:
        through_a_task(raising, NullKeyError(topic="orders", partition=0, offset=7))
    assert type(caught.value) is InputError
    assert (str(caught.value), vars(caught.value)["offset"]) == (
        str(NullKeyError(topic="orders", partition=0, offset=7)),
        7,
    )


def test_an_error_of_a_class_that_the_client_has_not_is_one_of_ours() -> None:
    with pytest.raises(StateStoreError, match="LaterError: what it says"):
        raise_from('{"error": "LaterError", "message": "what it says", "fields": {}}')
    assert failure_from("{}") is None


def test_a_record_is_bounded() -> None:
    error = TopologyChangedError("x" * 100_000, differences=["y" * 5000] * 1000, remedy="z" * 10_000)
    assert len(failure_json(error)) < AS_A_VALUE.whole + AS_A_VALUE.message


def test_any_other_error_is_for_spark_to_say() -> None:
    with pytest.raises(KeyError):
        through_a_task(raising, KeyError("x"))


def test_a_server_that_lacks_the_package_or_a_function_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ModuleType("of_the_client_alone")
    exec("def asked(): pass", own.__dict__)
    monkeypatch.setitem(sys.modules, own.__name__, own)
    pickled = cloudpickle.dumps((own.asked, (), {}))
    monkeypatch.delitem(sys.modules, own.__name__)
    run = _task(pickled)
    said = [json.loads(batch.column("said")[0].as_py()) for batch in run(iter(()))]
    with pytest.raises(TopologyError, match=r"is of module 'of_the_client_alone'"):
        _result(said[0])
    with monkeypatch.context() as older:
        older.setattr(statestore, "__version__", "0.0.1")
        (batch,) = run(iter(()))
    with pytest.raises(ConnectServerError, match=rf"lack statestore {statestore.__version__}, but 0\.0\.1: install"):
        _result(json.loads(batch.column("said")[0].as_py()))
    monkeypatch.setitem(sys.modules, "statestore.spark.sessions", None)
    (batch,) = run(iter(()))
    with pytest.raises(ConnectServerError, match=r"lack the module statestore\.spark\.sessions: install"):
        _result(json.loads(batch.column("said")[0].as_py()))


def test_a_path_is_absolute_where_another_machine_opens_it() -> None:
    for given in ("state", "./state"):
        with pytest.raises(ValueError, match=rf"the location '{given}' is a relative path"):
            location_in(CONNECT, given)
    for given in ("/state", "s3://bucket/state", "file:///state"):
        assert str(location_in(CONNECT, given)) == str(DurableLocation.of(given))


@pytest.mark.spark
def test_a_classic_session_calls_in_the_driver(spark: Any) -> None:
    there = object()
    assert on_server(spark, lambda value: value, there) is there
    assert location_in(spark, "state").uri == DurableLocation.of("state").uri


@pytest.mark.spark
def test_workers_of_a_local_session_have_the_drivers_python_unless_another_is_named(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    choose_python(spark)
    assert spark.sparkContext.pythonExec == "python3"
    monkeypatch.delenv("PYSPARK_PYTHON")
    choose_python(spark)
    assert spark.sparkContext.pythonExec == sys.executable
