"""One Spark session for all tests that need one."""

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statestore.bytestore.kinds.store_spec import StoreType
from statestore.spark import recommended_settings
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.testing.jars import connector_jars, delta_jars
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.clusters.clusters import Application, SharedApplication, make_spark_home
from tests.support.clusters.connect import ConnectClient, ConnectServer
from tests.support.recovery.s3_server import S3
from tests.support.spark.queries import OrderQuery
from tests.support.spark.store_rows import seeded_rows, write

_TOPIC_NUMBERS = count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Python workers unpickle processors by import: they need the path that pytest made.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    session = (
        SparkSession.builder.master("local[2,2]")  # a failed task is tried once more
        .appName("statestore tests")
        # There is one session in a process, so it has what the tests of Kafka and Delta need, whichever tests run.
        .config("spark.jars", ",".join(str(jar) for jar in (*connector_jars(), *delta_jars())))
        .config(map=settings_of_python())
        .config("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than these few rows do
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def settings_of_python() -> dict[str, str]:
    """Return what is recommended for Python workers. Memory and collector are those of the tests' own session."""
    recommended = recommended_settings(cores=2).session.as_options()
    return {name: value for name, value in recommended.items() if name.startswith("spark.python.")}


@pytest.fixture(params=["transform_with_state", "apply_in_pandas_with_state"])
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def order_query(spark: SparkSession, tmp_path: Path, via: str) -> OrderQuery:
    return OrderQuery(spark, tmp_path, via)


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    """A topic of one partition that no other test has."""
    name = f"topic-{next(_TOPIC_NUMBERS)}"
    KafkaCluster(broker.bootstrap_servers).create_topic(name, 1, {})
    return name


@pytest.fixture(scope="session")
def written_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state that the data source has written, of one store with headers; no test changes it."""
    path = tmp_path_factory.mktemp("written")
    write(StoreType.HEADERS_KV, path, seeded_rows(StoreType.HEADERS_KV))
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedApplication]:
    """An application with two executors for the tests of a file, as one does a day's queries."""
    home = tmp_path_factory.mktemp("local-cluster")
    shared = SharedApplication(home, "local-cluster[2,1,640]", make_spark_home(home / "spark"))
    yield shared
    shared.stop()


@pytest.fixture
def application(shared: SharedApplication) -> Application:
    return shared.running()


@pytest.fixture(scope="session")
def connect_server(s3_server: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server of Spark Connect for all tests of a process. Only it knows where S3 is, and the keys."""
    with ConnectServer(tmp_path_factory.mktemp("connect"), s3_server.environment()) as server:
        yield server


@pytest.fixture(scope="session")
def connect_client(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectClient]:
    """A client of it, which calls functions with its session; CONNECT_CLIENT_PYTHON is who runs another one."""
    python = os.environ.get("CONNECT_CLIENT_PYTHON", sys.executable)
    with ConnectClient(connect_server.remote, tmp_path_factory.mktemp("connect-client"), python) as client:
        yield client


@pytest.fixture
def connect_location(s3: S3) -> str:
    """A state location that a server of Spark Connect can reach, and its client can't."""
    return f"s3://{s3.bucket}/state"
