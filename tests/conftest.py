"""What holds for all tests, and what several folders ask for; `spark` is that of tests/spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from statestore.testing.jars import broker_jars, java_command
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.recovery.azure_server import Azure, running_azure
from tests.support.recovery.object_store import ObjectStore, no_faults
from tests.support.recovery.s3_server import S3, running_gateway, running_s3

pytest_plugins = ["tests.support.durations", "tests.support.needs"]

# A busy machine is no error: no example has a deadline, on any machine.
settings.register_profile("without deadline", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("without deadline")

# Both its tasks that delete what is old would, in seconds, delete records with timestamps such as those of tests.
NOTHING_IS_DELETED = {"log.initial.task.delay.ms": "3600000", "log.cleaner.backoff.ms": "3600000"}
# Everybody may do everything but what a test denies.
RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class SchedulingByServer(LoadFileScheduling):
    """A file's tests run in one process, and all those of Spark Connect, so that one server is started for them."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return "Spark Connect" if Path(scope).name.startswith("test_connect_") else scope


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SchedulingByServer:
    return SchedulingByServer(config, log)


@pytest.fixture(scope="session")
def java() -> str:
    """The command of Java: whoever starts it asks for this, which marks a test."""
    return java_command()


@pytest.fixture(scope="session")
def kafka(java: str) -> Path:
    """The jars of a broker: whoever starts one of its own asks for this, which marks a test."""
    return broker_jars()


@pytest.fixture(scope="session")
def broker(kafka: Path) -> Iterator[KafkaBroker]:
    """A broker for all tests of a process: each names its topics, and groups, so that no other has them."""
    with KafkaBroker(settings=NOTHING_IS_DELETED | RIGHTS) as broker:
        yield broker


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    """An S3 server, and a proxy before it, for all tests of a process; `s3` is the one that a test asks for."""
    with running_s3() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[Azure]:
    """An emulator of Azure, and a proxy before it, for all tests of a process; tests ask for `azure`."""
    with running_azure() as server:
        yield server


@pytest.fixture(scope="session")
def gateway_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Another S3 server, and a proxy before it, for all tests of a process; tests ask for `gateway`."""
    with running_gateway(tmp_path_factory.mktemp("gateway")) as server:
        yield server


@pytest.fixture(params=["s3", "gateway", "azure"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each kind of object store, as the fixture of its name gives it."""
    found: ObjectStore = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def azure(azure_server: Azure) -> Iterator[Azure]:
    """The emulator of Azure with a new container; what the test lets fail ends with it."""
    azure_server.new_bucket()
    yield azure_server
    azure_server.faults = no_faults


@pytest.fixture
def gateway(gateway_server: S3) -> Iterator[S3]:
    """The other S3 server with a new bucket; what the test lets fail ends with it."""
    gateway_server.new_bucket()
    yield gateway_server
    gateway_server.faults = no_faults


@pytest.fixture
def s3(s3_server: S3) -> Iterator[S3]:
    """The S3 server with a new bucket; what the test lets fail ends with it."""
    s3_server.new_bucket()
    yield s3_server
    s3_server.faults = no_faults
