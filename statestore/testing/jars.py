"""The jars that tests and demos need beside pyspark: of Kafka, of connectors, of other stores, and of a registry.

All come from the Java registry through Apache Ivy, whose jar pyspark ships, so neither Maven nor docker is needed. A
set of jars is one directory below $STATESTORE_JARS (default: statestore/jars in the user's cache directory). It appears
by one rename when all of it is there: a directory that exists is complete, and needs no network. Its jars
must have the checksums that are recorded in `jars.sha256`, each time that a process first uses it. That file is

    line := sha256:hex[64] "  " jar_set "/" jar

in the format of `sha256sum`, which can check a directory of sets as well.

`python -m statestore.testing.jars` resolves the sets that go with the installed Spark and prints where they are. With
`--record` it records the checksums of all sets instead of checking them: run it with an empty $STATESTORE_JARS after
changing a version, so that all are fetched.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Final, NamedTuple

from statestore.errors import HarnessError
from statestore.errors.harness import JarChecksumError, JarsUnavailableError, JavaNotFoundError

__all__ = ["connector_jars"]

KAFKA_VERSION = "4.3.1"
"""The version of the broker, and of Kafka Streams."""
_CONNECTOR_VERSIONS = {"4.0": "4.0.4", "4.1": "4.1.3", "4.2": "4.2.0"}
"""Of each Spark the newest connector that the registry has. Spark 4.3 runs with that of 4.2: there is none for it."""
_DELTA_SPARK, _DELTA_VERSION = "4.2", "4.4.0"
_HADOOP_SPARK, _HADOOP_VERSION = "4.2", "3.5.0"
_REGISTRY_VERSION = "2.6.13.Final"

# A first resolve takes about a minute; a registry that hangs must not hold up a test run for ever.
_RESOLVE_TIMEOUT_S = 900
_OUTPUT_TAIL_LINES = 30
RECORD: Final = Path(__file__).with_name("jars.sha256")
_CHUNK_BYTES: Final = 1 << 20

SHORT_LIVED_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of JVMs that live for seconds or minutes and share few cores: an optimising compiler does not pay off."""

_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="registry"/>
  <resolvers><ibiblio name="registry" m2compatible="true"/></resolvers>
</ivysettings>
"""


class _JarSet(NamedTuple):
    """A set of jars; `dependencies` is the inside of Ivy's element of that name."""

    name: str
    dependencies: str

    @property
    def ivy_module(self) -> str:
        return (
            f'<ivy-module version="2.0">\n  <info organisation="statestore" module="{self.name}"/>\n'
            f"  <dependencies>\n{self.dependencies}  </dependencies>\n</ivy-module>\n"
        )

    @property
    def directory(self) -> Path:
        """Where the set is kept: another one as soon as any dependency changes."""
        digest = hashlib.sha256(self.ivy_module.encode()).hexdigest()
        return _cache_directory() / f"{self.name}-{digest[:12]}"


def _jar(org: str, name: str, version: str, *, alone: bool = False) -> str:
    """Name a jar, with all that it needs, or alone."""
    transitive = ' transitive="false"' if alone else ""
    return f'    <dependency org="{org}" name="{name}" rev="{version}" conf="default"{transitive}/>\n'


def _of_kafka(name: str) -> str:
    return _jar("org.apache.kafka", name, KAFKA_VERSION)


def _without(org: str, module: str | None = None) -> str:
    """Exclude a module, or all of an organisation's."""
    of_module = "" if module is None else f' module="{module}"'
    return f'    <exclude org="{org}"{of_module}/>\n'


# Connect comes with the command line tools, but no command used here needs it: 38 jars, and most of the waiting.
# Without the log4j binding the broker's log is lost, and with it the reason why a broker does not start.
_BROKER = _JarSet(
    f"kafka-broker-{KAFKA_VERSION}",
    _of_kafka("kafka_2.13")
    + _of_kafka("kafka-tools")
    + _jar("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
    + "".join(_without("org.apache.kafka", f"connect-{part}") for part in ("runtime", "json", "transforms")),
)

# What is excluded is in pyspark already. The token provider is not in the registry at 4.2.0; 4.0.0 is seen to work.
_CONNECTORS = {
    spark: _JarSet(
        f"spark-kafka-connector-{newest}",
        _jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", newest)
        + _without("org.apache.hadoop")
        + _without("org.scala-lang")
        + _without("org.apache.spark", "spark-tags_2.13")
        + '    <override org="org.apache.spark" module="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"/>\n',
    )
    for spark, newest in _CONNECTOR_VERSIONS.items()
}

# Jackson is on it already, as a dependency of kafka-streams. The silent binding keeps the log out of a
# program's output: the stores throw what matters.
_KAFKA_STREAMS = _JarSet(
    f"kafka-streams-{KAFKA_VERSION}",
    _of_kafka("kafka-streams") + _of_kafka("kafka-streams-test-utils") + _jar("org.slf4j", "slf4j-nop", "1.7.36"),
)

# Alone: Connect's runtime brings a web server and much else, and only its converter of bytes is used.
_CONNECT = _JarSet(
    f"kafka-connect-{KAFKA_VERSION}",
    "".join(map(_of_kafka, ("connect-api", "connect-json", "connect-transforms")))
    + _jar("org.apache.kafka", "connect-runtime", KAFKA_VERSION, alone=True)
    + _jar("org.slf4j", "slf4j-nop", "1.7.36"),
)

# Tables at a path need none of its other dependencies: catalogs, and readers without Spark.
_DELTA = _JarSet(
    f"delta-{_DELTA_VERSION}",
    "".join(
        _jar("io.delta", name, _DELTA_VERSION, alone=True)
        for name in (f"delta-spark_{_DELTA_SPARK}_2.13", "delta-storage")
    ),
)

# Alone: the rest of Hadoop is in pyspark, in the same version.
_HDFS = _JarSet(
    f"hdfs-{_HADOOP_VERSION}", _jar("org.apache.hadoop", "hadoop-client-minicluster", _HADOOP_VERSION, alone=True)
)

# An archive, with all that it needs: the jar of that name runs in it alone. From 3 on it needs Java 21.
_REGISTRY = _JarSet(
    f"apicurio-registry-{_REGISTRY_VERSION}",
    f'    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{_REGISTRY_VERSION}" transitive="false">\n'
    '      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz"'
    ' xmlns:m="http://ant.apache.org/ivy/maven" m:classifier="all"/>\n'
    "    </dependency>\n",
)

# What YARN's managers need beside that.
_YARN = _JarSet(f"yarn-{_HADOOP_VERSION}", _jar("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"))

_ALL = (_BROKER, _CONNECT, *_CONNECTORS.values(), _DELTA, _HDFS, _KAFKA_STREAMS, _REGISTRY, _YARN)
_checked: set[Path] = set()
"""The directories that this process has checked: to read their jars takes up to half a second."""


def broker_jars() -> Path:
    """The directory of the jars that a Kafka broker and its command line tools need on their class path."""
    return _directory_of(_BROKER)


def connector_jars() -> list[Path]:
    """The jars to name in `spark.jars` for the installed Spark's Kafka source and sink, ordered by name.

    Raises JarsUnavailableError if they are not on this machine and can't be resolved, and JarChecksumError.
    """
    return sorted(_directory_of(_connector()).glob("*.jar"))


def delta_jars() -> list[Path]:
    """The jars to name in `spark.jars` for tables of Delta Lake; none if the installed Spark is not theirs."""
    return sorted(_directory_of(_DELTA).glob("*.jar")) if _spark_release() == _DELTA_SPARK else []


def hdfs_jars() -> list[Path]:
    """The jars to run HDFS on; none if the installed Spark is not of its version."""
    if _spark_release() != _HADOOP_SPARK:
        return []
    return [*_directory_of(_HDFS).glob("*.jar"), *_jars_of_pyspark("*")]


def yarn_jars() -> list[Path]:
    """The jars to run YARN on; none if the installed Spark is not of its version."""
    return [*jars, *_directory_of(_YARN).glob("*.jar")] if (jars := hdfs_jars()) else []


def kafka_streams_jars() -> Path:
    """The directory of the jars to run Kafka Streams on its test driver, without a broker."""
    return _directory_of(_KAFKA_STREAMS)


def registry_archive() -> Path:
    """The archive of a schema registry that speaks Confluent's protocol, Apicurio's."""
    (archive,) = _directory_of(_REGISTRY).iterdir()
    return archive


def connect_jars() -> Path:
    """The directory of the jars of Kafka Connect's schemas, converters and transforms."""
    return _directory_of(_CONNECT)


def java_command() -> str:
    """The Java of JAVA_HOME, as Spark does it, else the one on PATH. Raises JavaNotFoundError."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if command is None:
        raise JavaNotFoundError
    return command


def _connector() -> _JarSet:
    return _CONNECTORS.get(_spark_release()) or [*_CONNECTORS.values()][-1]


def _spark_release() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def _cache_directory() -> Path:
    if configured := os.environ.get("STATESTORE_JARS"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "statestore" / "jars"


def _directory_of(jar_set: _JarSet) -> Path:
    directory = _ensure_directory(jar_set, is_checked=True)
    if directory not in _checked:
        _check_jars(jar_set.name, directory)
        _checked.add(directory)
    return directory


def _ensure_directory(jar_set: _JarSet, *, is_checked: bool) -> Path:
    """Return the directory of a set, resolved if it is not there; a checked one appears only with the right jars."""
    directory = jar_set.directory
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".resolving-", dir=directory.parent) as work:
            jars = _resolve(jar_set, Path(work))
            if is_checked:
                _check_jars(jar_set.name, jars)
            _publish(jars, directory)
    return directory


def _checksums_of(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar in a directory, by its name."""
    return {path.name: _checksum(path) for path in sorted(directory.iterdir())}


def _check_jars(jar_set: str, directory: Path) -> None:
    """Raise JarChecksumError for a jar in `directory` that is not as recorded of the set, is missing or too many."""
    expected, found = read_record().get(jar_set, {}), _checksums_of(directory)
    for jar in sorted(expected.keys() | found.keys()):
        if expected.get(jar) != found.get(jar):
            raise JarChecksumError(
                jar, jar_set=jar_set, directory=str(directory), expected=expected.get(jar), found=found.get(jar)
            )


def read_record() -> dict[str, dict[str, str]]:
    """Return what is recorded: checksums by jar, by set."""
    sets: dict[str, dict[str, str]] = {}
    for line in RECORD.read_text(encoding="ascii").splitlines():
        checksum, _, path = line.partition("  ")
        jar_set, _, jar = path.partition("/")
        sets.setdefault(jar_set, {})[jar] = checksum
    return sets


def _write_record(sets: Mapping[str, Path]) -> None:
    """Record the jars of all sets, each in its directory, as they are now."""
    lines = (
        f"{checksum}  {jar_set}/{jar}\n"
        for jar_set, directory in sorted(sets.items())
        for jar, checksum in _checksums_of(directory).items()
    )
    RECORD.write_text("".join(lines), encoding="ascii")


def _checksum(path: Path) -> str:
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return hashed.hexdigest()


def _resolve(jar_set: _JarSet, work: Path) -> Path:
    """Download the set below `work` and return the directory that holds it."""
    settings, module, jars = work / "settings.xml", work / "ivy.xml", work / "jars"
    settings.write_text(_IVY_SETTINGS)
    module.write_text(jar_set.ivy_module)
    command = [java_command(), "-cp", str(_ivy_jar(jar_set)), "org.apache.ivy.Main"]
    # Ivy's own cache is private to this call as well: it has no lock, and a download cut short would stay in it.
    command += ["-settings", str(settings), "-cache", str(work / "cache"), "-ivy", str(module), "-confs", "default"]
    command += ["-retrieve", f"{jars}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, stdout=PIPE, stderr=STDOUT, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise JarsUnavailableError(jar_set.name, output=f"nothing in {_RESOLVE_TIMEOUT_S} s") from exc
    if done.returncode != 0 or not jars.is_dir():
        tail = done.stdout.strip().splitlines()[-_OUTPUT_TAIL_LINES:]
        raise JarsUnavailableError(jar_set.name, output="\n".join(tail))
    return jars


def _publish(jars: Path, directory: Path) -> None:
    try:
        jars.rename(directory)
    except OSError:
        # Another process that resolved the same set was first: its directory is as complete as ours.
        if not directory.is_dir():
            raise


def _ivy_jar(jar_set: _JarSet) -> Path:
    found = _jars_of_pyspark("ivy-*")
    if not found:
        raise JarsUnavailableError(jar_set.name, output="(not started: there is no ivy jar in pyspark's directory)")
    return found[0]


def _jars_of_pyspark(pattern: str) -> list[Path]:
    # Found, not imported: pyspark is for statestore.spark, and importing it costs a second.
    pyspark = importlib.util.find_spec("pyspark")
    places = (pyspark.submodule_search_locations or []) if pyspark else []
    return [jar for place in places for jar in Path(place, "jars").glob(f"{pattern}.jar")]


def _main(arguments: Sequence[str] | None = None) -> int:
    """Resolve all sets, saying what is going on: the first time takes a minute or two."""
    parser = argparse.ArgumentParser(prog="python -m statestore.testing.jars", description="Resolve the jars of tests.")
    parser.add_argument("--record", action="store_true", help="record their checksums anew, instead of checking them")
    asked = parser.parse_args(arguments)
    try:
        of_this_spark = (
            _BROKER,
            _CONNECT,
            _connector(),
            *((_DELTA,) if _spark_release() == _DELTA_SPARK else ()),
            *((_HDFS,) if _spark_release() == _HADOOP_SPARK else ()),
            _KAFKA_STREAMS,
            _REGISTRY,
        )
        for jar_set in _ALL if asked.record else of_this_spark:
            if not jar_set.directory.is_dir():
                print(f"fetching the jars of {jar_set.name} (once, a minute or two) ...", flush=True)
            directory = _ensure_directory(jar_set, is_checked=False) if asked.record else _directory_of(jar_set)
            print(f"{jar_set.name}: {directory}", flush=True)
        if asked.record:
            _write_record({jar_set.name: jar_set.directory for jar_set in _ALL})
    except HarnessError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
