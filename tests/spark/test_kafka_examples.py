"""The example programs of the cookbook put out the same in the test driver, from files, and from Kafka to Kafka."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from statestore import Serdes, Topology, Windowed
from statestore.dsl import StreamsBuilder, time_windowed_serde
from statestore.format.serde import Serde
from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.testing import TestRecord, TopologyTestDriver
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.documentation import ROOT, run_page

pytestmark = pytest.mark.slow

COOKBOOK = ROOT / "docs" / "cookbook"
BYTES, TEXT, INT64, JSON = Serdes.bytes(), Serdes.string(), Serdes.int64(), Serdes.json()
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000

Output = tuple[Any, Any, int, list[int]]
"""Key, value, time, and the numbers of the records whose header `trace` it has."""


class Given(NamedTuple):
    """A record of an input topic; its header `trace` is its number among those of the program."""

    topic: str
    key: str | None
    value: str
    time_ms: int


class Example(NamedTuple):
    """What a program is given, and what it puts into its topic."""

    given: Sequence[Given]
    topic: str
    serdes: tuple[Serde[Any], Serde[Any]]
    expected: Sequence[Output]
    page: str = "kafka-examples"


def given(topic: str, *records: tuple[str | None, str, int]) -> list[Given]:
    return [Given(topic, *record) for record in records]


def viewed(page: str, industry: str, flags: Sequence[str] = ("ARTICLE",)) -> str:
    return json.dumps({"page": page, "industry": industry, "flags": flags})


LINES = "streams-plaintext-input"
TEXTS = ((None, "To be, or", 1_000), (None, "not to be", 2_500))
TEMPERATURES = enumerate(["10", "22", "21", "9", "30", "25", "8"], start=1)
CLICKS = [("ada", 1), ("ada", 2), ("ben", 3), ("ada", 30), ("ada", 59), ("ada", 61)]


def weeks(region: str, count: int, days: range, time_ms: int, numbers: list[int]) -> list[Output]:
    """What comes out of the weeks that begin on these days."""
    return [({"window-start": day * DAY_MS, "region": region}, {"count": count}, time_ms, numbers) for day in days]


EXAMPLES = {
    "word_count": Example(
        given("lines", *TEXTS),
        "counts",
        (TEXT, INT64),
        [
            ("to", 1, 1_000, [0]),
            ("be,", 1, 1_000, [0]),
            ("or", 1, 1_000, [0]),
            ("not", 1, 2_500, [1]),
            ("to", 2, 2_500, [1]),
            ("be", 1, 2_500, [1]),
        ],
        page="word-count",
    ),
    "pipe": Example(
        given(LINES, *TEXTS),
        "streams-pipe-output",
        (TEXT, TEXT),
        [(None, "To be, or", 1_000, [0]), (None, "not to be", 2_500, [1])],
    ),
    "line_split": Example(
        given(LINES, *TEXTS),
        "streams-linesplit-output",
        (TEXT, TEXT),
        [
            *((None, word, 1_000, [0]) for word in ("To", "be", "or")),
            *((None, word, 2_500, [1]) for word in ("not", "to", "be")),
        ],
    ),
    "word_count_by_processor": Example(
        given(LINES, *TEXTS),
        "streams-wordcount-processor-output",
        (TEXT, TEXT),
        [
            *((word, "1", 1_000, []) for word in ("be", "or", "to")),
            *((word, count, 2_500, []) for word, count in (("be", "2"), ("not", "1"), ("or", "1"), ("to", "2"))),
        ],
    ),
    "page_views": Example(
        [
            *given("streams-userprofile-input", ("ada", '{"region": "eu"}', 1_000)),
            *given("streams-pageview-input", ("ada", '{"user": "ada", "page": "p1"}', 10 * DAY_MS)),
            *given("streams-pageview-input", ("ben", '{"user": "ben", "page": "p1"}', 10 * DAY_MS + 1)),
            *given("streams-pageview-input", ("ada", '{"user": "ada", "page": "p2"}', 11 * DAY_MS)),
        ],
        "streams-pageviewstats-untyped-output",
        (JSON, JSON),
        [
            *weeks("eu", 1, range(4, 11), 10 * DAY_MS, [1, 0]),
            *weeks("UNKNOWN", 1, range(4, 11), 10 * DAY_MS + 1, [2]),
            *weeks("eu", 2, range(5, 11), 11 * DAY_MS, [3, 0]),
            *weeks("eu", 1, range(11, 12), 11 * DAY_MS, [3, 0]),
        ],
    ),
    "temperature": Example(
        given("iot-temperature", *((None, reading, 1_000 * second) for second, reading in TEMPERATURES)),
        "iot-temperature-max",
        (time_windowed_serde(TEXT, 5_000), TEXT),
        [
            (Windowed("temp", 0, 5_000), "22", 2_000, [1]),
            (Windowed("temp", 0, 5_000), "22", 3_000, [2]),
            (Windowed("temp", 0, 5_000), "22", 4_000, [3]),
            (Windowed("temp", 5_000, 10_000), "30", 5_000, [4]),
            (Windowed("temp", 5_000, 10_000), "30", 6_000, [5]),
            (Windowed("temp", 5_000, 10_000), "30", 7_000, [6]),
        ],
    ),
    "anomalies": Example(
        given("UserClicks", *((None, user, 1_000 * second) for user, second in CLICKS)),
        "AnomalousUsers",
        (TEXT, INT64),
        [("[ada@0/60000]", 3, 30_000, [3]), ("[ada@0/60000]", 4, 59_000, [4])],
    ),
    "top_articles": Example(
        given(
            "PageViews",
            ("u", viewed("a", "news"), 1 * MINUTE_MS),
            ("v", viewed("b", "news"), 2 * MINUTE_MS),
            ("u", viewed("b", "news"), 3 * MINUTE_MS),
            ("u", viewed("x", "news", flags=()), 4 * MINUTE_MS),
            ("u", viewed("z", "tech"), 5 * MINUTE_MS),
            ("v", viewed("c", "news"), 61 * MINUTE_MS),
        ),
        "TopNewsPerIndustry",
        (time_windowed_serde(TEXT, HOUR_MS), JSON),
        [
            (Windowed("news", 0, HOUR_MS), ["a"], 1 * MINUTE_MS, [0]),
            (Windowed("news", 0, HOUR_MS), ["a", "b"], 2 * MINUTE_MS, [1]),
            (Windowed("news", 0, HOUR_MS), ["b", "a"], 3 * MINUTE_MS, [2]),
            (Windowed("tech", 0, HOUR_MS), ["z"], 5 * MINUTE_MS, [4]),
            (Windowed("news", HOUR_MS, 2 * HOUR_MS), ["c"], 61 * MINUTE_MS, [5]),
        ],
    ),
    "sessions": Example(
        given("play-events", *(("jo", "song", minute * MINUTE_MS) for minute in (1, 46, 21)), ("al", "song", 99_000)),
        "play-events-per-session",
        (TEXT, INT64),
        [
            ("jo@60000->60000", 1, 60_000, [0]),
            ("jo@2760000->2760000", 1, 2_760_000, [1]),
            ("jo@60000->60000", None, 60_000, [2]),
            ("jo@2760000->2760000", None, 2_760_000, [2]),
            ("jo@60000->2760000", 3, 2_760_000, [2]),
            ("al@99000->99000", 1, 99_000, [3]),
        ],
    ),
}

LINES_PARTITION = 1
"""No other topic has it: in a query of all programs, only lines move the time that words are reported by."""
Outputs = dict[bytes | None, list[tuple[bytes | None, int, list[tuple[str, bytes]]]]]
"""Values, times and headers of each key, in their order."""


def by_key(records: Iterable[Any]) -> Outputs:
    outputs: Outputs = {}
    for each in records:
        headers = [(header.key, bytes(header.value)) for header in each.headers or ()]
        key, value = (data if data is None else bytes(data) for data in (each.key, each.value))
        outputs.setdefault(key, []).append((value, each.timestamp_ms, headers))
    return outputs


class Programs:
    """The programs of the pages."""

    def __init__(self) -> None:
        self._pages = {
            page: run_page(COOKBOOK / f"{page}.md", with_spark=False) for page in ("word-count", "kafka-examples")
        }
        self.page: Any = self._pages["kafka-examples"]
        """The page that says how they are run."""

    def topology(self, *names: str) -> Topology:
        """Some of the programs as one."""
        builder = StreamsBuilder()
        for name in names:
            getattr(self._pages[EXAMPLES[name].page], name)(builder)
        return builder.build()

    def in_driver(self, name: str) -> list[TestRecord[Any, Any]]:
        """What one of them puts out, in bytes."""
        example = EXAMPLES[name]
        with TopologyTestDriver(self.topology(name)) as driver:
            for number, each in enumerate(example.given):
                topic = driver.create_input_topic(each.topic, key_serde=TEXT, value_serde=TEXT)
                topic.pipe_input(TestRecord(each.key, each.value, each.time_ms, [("trace", b"%d" % number)]))
            return driver.create_output_topic(example.topic, key_serde=BYTES, value_serde=BYTES).read_records_to_list()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("pages"))
        yield Programs()


def inputs() -> Iterator[tuple[str, int, Given]]:
    """Each record once, with its header and its partition."""
    for example in {example.given[0].topic: example for example in EXAMPLES.values()}.values():
        for number, each in enumerate(example.given):
            yield str(number), LINES_PARTITION if each.topic == LINES else 0, each


def of_topics(rows: DataFrame) -> dict[str, list[Row]]:
    """Rows of the shape of Kafka's records, by topic."""
    found = defaultdict(list)
    for row in rows.withColumn("timestamp_ms", f.unix_millis("timestamp")).collect():
        found[row.topic].append(row)
    return found


@pytest.fixture(scope="module")
def from_files(
    programs: Programs, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    """What one query of all programs puts out for a file of all records."""
    home = tmp_path_factory.mktemp("files")
    (home / "in").mkdir()
    with (home / "in" / "records.json").open("w") as file:
        for offset, (trace, partition, each) in enumerate(inputs()):
            fields = {"topic": each.topic, "key": each.key, "payload": each.value, "ts": each.time_ms}
            print(json.dumps({**fields, "partition": partition, "offset": offset, "trace": trace}), file=file)
    found: dict[str, list[Row]] = {}
    writer = programs.page.query(programs.page.from_files(spark, f"{home}/in"), programs.topology(*EXAMPLES), home)
    writer.foreachBatch(lambda batch, _: found.update(of_topics(batch))).start().awaitTermination()
    return found


@pytest.fixture(scope="module")
def from_kafka(
    programs: Programs, spark: SparkSession, broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    """What one query of all programs, from Kafka to Kafka, has put into topics."""
    servers, sent = broker.bootstrap_servers, [*inputs()]
    topics = {each.topic for _, _, each in sent}
    cluster = KafkaCluster(servers)
    for topic in topics:
        cluster.create_topic(topic, 2, {})
    for example in EXAMPLES.values():
        cluster.create_topic(example.topic, 1, {})
    producer = Producer({"bootstrap.servers": servers})
    for trace, partition, each in sent:
        fields = each.topic, each.value, each.key, partition
        producer.produce(*fields, timestamp=each.time_ms, headers={"trace": trace})
    assert producer.flush(30) == 0
    page, home = programs.page, tmp_path_factory.mktemp("kafka")
    writer = page.query(page.from_kafka(spark, servers, ",".join(topics)), programs.topology(*EXAMPLES), home)
    page.into_kafka(writer, servers, markers="markers-of-kafka-examples").awaitTermination()
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("includeHeaders", "true")
    read = read.option("subscribe", ",".join(example.topic for example in EXAMPLES.values()))
    return of_topics(read.load().orderBy("topic", "partition", "offset"))


def numbers_of(record: TestRecord[Any, Any]) -> list[int]:
    return [int(header.value or b"") for header in record.headers]


of_each_program = pytest.mark.parametrize("name", EXAMPLES)


@of_each_program
def test_a_program_in_the_driver(name: str, programs: Programs) -> None:
    example = EXAMPLES[name]
    key, value = (serde.deserialize for serde in example.serdes)
    found = [
        (each.key and key(each.key), each.value and value(each.value), each.timestamp_ms, numbers_of(each))
        for each in programs.in_driver(name)
    ]
    assert found == example.expected


@of_each_program
def test_a_program_from_files(name: str, programs: Programs, from_files: dict[str, list[Row]]) -> None:
    assert by_key(from_files[EXAMPLES[name].topic]) == by_key(programs.in_driver(name))


@of_each_program
def test_a_program_from_kafka_to_kafka(name: str, programs: Programs, from_kafka: dict[str, list[Row]]) -> None:
    assert by_key(from_kafka[EXAMPLES[name].topic]) == by_key(programs.in_driver(name))
