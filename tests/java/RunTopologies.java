import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/**
 * Runs named topologies through Kafka Streams' own TopologyTestDriver and says what came out, as JSON.
 *
 * <p>Reads a JSON list of scenarios from standard input and prints the list of their results. A scenario is
 * {@code {"topology": NAME, "initial_wall_clock_ms": N, "persistent": BOOLEAN, "steps": [...]}}, with the steps of
 * {@link DriverRun}. The topologies are those of tests/support/twins; "graph" is made of the scenario's "graph", a list of what is added: {@code ["source", NAME, TOPICS]},
 * {@code ["processor", NAME, PARENTS]}, {@code ["sink", NAME, TOPIC, PARENTS]}, {@code ["store", NAME, PROCESSORS]} and
 * {@code ["global", STORE, SOURCE, TOPIC, PROCESSOR]}.
 */
@SuppressWarnings("unchecked")
public final class RunTopologies {

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> STRING = Serdes.String();
    private static final Duration RETENTION = Duration.ofMillis(60_000);
    private static final Duration WINDOW = Duration.ofMillis(10_000);
    private static final long GAP_MS = 5_000;

    public static void main(String[] args) throws Exception {
        // Whatever a library prints goes to stderr: stdout is for JSON alone, in UTF-8 whatever the locale.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        var results = new ArrayList<Map<String, Object>>();
        for (JsonNode scenario : JSON.readTree(System.in)) {
            results.add(new RunTopologies(scenario).run());
        }
        answers.println(JSON.writeValueAsString(results));
    }

    // ---- Running a scenario

    private final JsonNode scenario;

    private RunTopologies(JsonNode scenario) {
        this.scenario = scenario;
    }

    private Map<String, Object> run() throws Exception {
        var result = new LinkedHashMap<String, Object>();
        String asked = scenario.get("topology").asText();
        Function<Kit, Topology> function = asked.equals("graph") ? this::graph : TOPOLOGIES.get(asked);
        if (function == null) {
            throw new IllegalArgumentException("no topology " + asked);
        }
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("run-topologies").toString());
        TopologyTestDriver driver;
        try {
            Topology topology = function.apply(new Kit(scenario.path("persistent").asBoolean()));
            result.put("describe", topology.describe().toString());
            Instant start = Instant.ofEpochMilli(scenario.path("initial_wall_clock_ms").asLong());
            driver = new TopologyTestDriver(topology, config, start);
        } catch (Exception failure) {
            result.put("error", DriverRun.messages(failure));
            return result;
        }
        var run = new DriverRun(driver);
        var steps = new ArrayList<Object>();
        for (JsonNode step : scenario.get("steps")) {
            steps.add(run.outcome(step));
        }
        result.put("steps", steps);
        result.put("stores", run.stores());
        driver.close();
        result.put("topics", run.topics());
        return result;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String string(byte[] utf8) {
        return utf8 == null ? null : new String(utf8, StandardCharsets.UTF_8);
    }

    // ---- What topologies are made of

    private interface Step {
        void process(ProcessorContext<Object, Object> context, Record<String, String> record);
    }

    private static ProcessorSupplier<String, String, Object, Object> each(Step step) {
        return each(context -> { }, step);
    }

    private static ProcessorSupplier<String, String, Object, Object> each(
            Consumer<ProcessorContext<Object, Object>> init, Step step) {
        return () -> new Processor<>() {
            private ProcessorContext<Object, Object> context;

            @Override
            public void init(ProcessorContext<Object, Object> context) {
                this.context = context;
                init.accept(context);
            }

            @Override
            public void process(Record<String, String> record) {
                step.process(context, record);
            }
        };
    }

    /** Passes on what it gets. */
    private static ProcessorSupplier<String, String, Object, Object> pass() {
        return each((context, record) -> context.forward(record));
    }

    private static <K, V> void put(ProcessorContext<?, ?> context, String store, K key, V value) {
        ((KeyValueStore<K, V>) context.<KeyValueStore<K, V>>getStateStore(store)).put(key, value);
    }

    /** Builders of stores, with sources and sinks of strings. */
    private record Kit(boolean persistent) {

        Topology topology(String... topics) {
            return source(new Topology(), "source", topics);
        }

        static Topology source(Topology topology, String name, String... topics) {
            return topology.addSource(name, new StringDeserializer(), new StringDeserializer(), topics);
        }

        static Topology sink(Topology topology, String name, String topic, String... parents) {
            return topology.addSink(name, topic, new StringSerializer(), new StringSerializer(), parents);
        }

        private KeyValueBytesStoreSupplier keyValues(KeyValueBytesStoreSupplier inRocksDb) {
            return persistent ? inRocksDb : Stores.inMemoryKeyValueStore(inRocksDb.name());
        }

        private WindowBytesStoreSupplier windows(WindowBytesStoreSupplier inRocksDb) {
            return persistent ? inRocksDb : Stores.inMemoryWindowStore(inRocksDb.name(), RETENTION, WINDOW, false);
        }

        private SessionBytesStoreSupplier sessions(SessionBytesStoreSupplier inRocksDb) {
            return persistent ? inRocksDb : Stores.inMemorySessionStore(inRocksDb.name(), RETENTION);
        }

        <V> StoreBuilder<?> plain(String name, Serde<V> values) {
            return Stores.keyValueStoreBuilder(keyValues(Stores.persistentKeyValueStore(name)), STRING, values);
        }

        <V> StoreBuilder<?> timestamped(String name, Serde<V> values) {
            KeyValueBytesStoreSupplier store = keyValues(Stores.persistentTimestampedKeyValueStore(name));
            return Stores.timestampedKeyValueStoreBuilder(store, STRING, values);
        }

        <V> StoreBuilder<?> withHeaders(String name, Serde<V> values) {
            return withHeaders(name, STRING, values);
        }

        <V> StoreBuilder<?> withHeaders(String name, Serde<String> keys, Serde<V> values) {
            KeyValueBytesStoreSupplier store = keyValues(Stores.persistentTimestampedKeyValueStoreWithHeaders(name));
            return Stores.timestampedKeyValueStoreWithHeadersBuilder(store, keys, values);
        }

        StoreBuilder<?> window(String name) {
            WindowBytesStoreSupplier store = Stores.persistentWindowStore(name, RETENTION, WINDOW, false);
            return Stores.windowStoreBuilder(windows(store), STRING, STRING);
        }

        StoreBuilder<?> timestampedWindow(String name) {
            WindowBytesStoreSupplier store = Stores.persistentTimestampedWindowStore(name, RETENTION, WINDOW, false);
            return Stores.timestampedWindowStoreBuilder(windows(store), STRING, STRING);
        }

        StoreBuilder<?> windowWithHeaders(String name) {
            return windowWithHeaders(name, STRING);
        }

        StoreBuilder<?> windowWithHeaders(String name, Serde<String> keys) {
            WindowBytesStoreSupplier store =
                Stores.persistentTimestampedWindowStoreWithHeaders(name, RETENTION, WINDOW, false);
            return Stores.timestampedWindowStoreWithHeadersBuilder(windows(store), keys, STRING);
        }

        StoreBuilder<?> session(String name) {
            return Stores.sessionStoreBuilder(
                sessions(Stores.persistentSessionStore(name, RETENTION)), STRING, STRING);
        }

        StoreBuilder<?> sessionWithHeaders(String name) {
            return sessionWithHeaders(name, STRING);
        }

        StoreBuilder<?> sessionWithHeaders(String name, Serde<String> keys) {
            return Stores.sessionStoreWithHeadersBuilder(
                sessions(Stores.persistentSessionStoreWithHeaders(name, RETENTION)), keys, STRING);
        }
    }

    // ---- The topologies

    private static final Map<String, Function<Kit, Topology>> TOPOLOGIES = new LinkedHashMap<>();

    static {
        TOPOLOGIES.put("stateless", RunTopologies::stateless);
        TOPOLOGIES.put("running-total", RunTopologies::runningTotal);
        TOPOLOGIES.put("counts", RunTopologies::counts);
        TOPOLOGIES.put("windows", RunTopologies::windows);
        TOPOLOGIES.put("sessions", RunTopologies::sessions);
        TOPOLOGIES.put("versions", RunTopologies::versions);
        TOPOLOGIES.put("tenant-keys", RunTopologies::tenantKeys);
        TOPOLOGIES.put("stream-punctuation", RunTopologies::streamPunctuation);
        TOPOLOGIES.put("wall-clock-punctuation", RunTopologies::wallClockPunctuation);
        TOPOLOGIES.put("punctuations-due-together", RunTopologies::punctuationsDueTogether);
        TOPOLOGIES.put("global-store", RunTopologies::globalStore);
        TOPOLOGIES.put("linked", RunTopologies::linked);
        TOPOLOGIES.put("fan-out-to-sources", RunTopologies::fanOutToSources);
        TOPOLOGIES.put("shared-store", RunTopologies::sharedStore);
        TOPOLOGIES.put("routing", RunTopologies::routing);
        TOPOLOGIES.put("cached", RunTopologies::cached);
        TOPOLOGIES.put("metadata", RunTopologies::metadata);
        TOPOLOGIES.put("failing", RunTopologies::failing);
        TOPOLOGIES.put("failing-init", RunTopologies::failingInit);
        TOPOLOGIES.put("failing-punctuator", RunTopologies::failingPunctuator);
        TOPOLOGIES.put("many-nodes", RunTopologies::manyNodes);
        wrongTopologies();
    }

    /** Headers that are added, removed, and changed after a forward and by one child before the other. */
    private static Topology stateless(Kit kit) {
        Topology topology = kit.topology("in")
            .addProcessor("tag", each((context, record) -> {
                record.headers().remove("drop").add("tag", bytes("" + record.key()));
                context.forward(record);
                var early = record.withKey("early");
                record.headers().add("late", null);
                context.forward(early);
                context.forward(record.withValue(record.value() + "!").withTimestamp(record.timestamp() + 1));
                context.forward(record.withHeaders(new RecordHeaders()).withKey("bare"));
            }), "source")
            .addProcessor("first", each((context, record) -> {
                record.headers().add("first", bytes("1"));
                context.forward(record);
            }), "tag")
            .addProcessor("second", pass(), "tag");
        Kit.sink(topology, "sink-first", "out-first", "first");
        Kit.sink(topology, "sink-second", "out-second", "second");
        return Kit.sink(topology, "sink-direct", "out-direct", "tag");
    }

    /** A total per key, with the latest timestamp and the headers of the first record that had some. */
    private static Topology runningTotal(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("total", each((context, record) -> {
            var totals = context.<KeyValueStore<String, ValueTimestampHeaders<Long>>>getStateStore("totals");
            if (record.value() == null) {
                totals.delete(record.key());
                context.forward(record);
                return;
            }
            ValueTimestampHeaders<Long> before = totals.get(record.key());
            long total = (before == null ? 0 : before.value()) + record.value().length();
            long timestamp = before == null ? record.timestamp() : Math.max(before.timestamp(), record.timestamp());
            Headers headers = before != null && before.headers().toArray().length > 0
                ? before.headers() : record.headers();
            totals.put(record.key(), ValueTimestampHeaders.make(total, timestamp, headers));
            record.headers().add("total", bytes("" + total));
            context.forward(record.withValue("" + total).withTimestamp(timestamp));
        }), "source").addStateStore(kit.withHeaders("totals", Serdes.Long()), "total");
        return Kit.sink(topology, "sink", "out", "total");
    }

    /** Stores without headers: what they log takes timestamps from the record or the value. */
    private static Topology counts(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("count", each((context, record) -> {
            var plain = context.<KeyValueStore<String, Long>>getStateStore("plain");
            var timestamped = context.<KeyValueStore<String, ValueAndTimestamp<Long>>>getStateStore("timestamped");
            String value = "" + record.value();
            if (value.equals("null")) {
                plain.put(record.key(), null);
                timestamped.put(record.key(), null);
            } else if (value.startsWith("d")) {
                context.forward(record.withValue("" + plain.delete(record.key())));
                timestamped.delete(record.key());
            } else if (value.startsWith("i")) {
                plain.putIfAbsent(record.key(), 100L);
                timestamped.putIfAbsent(record.key(), ValueAndTimestamp.make(100L, record.timestamp() + 7));
            } else {
                Long before = plain.get(record.key());
                plain.put(record.key(), before == null ? 1 : before + 1);
                record.headers().add("counted", null);
                ValueAndTimestamp<Long> held = timestamped.get(record.key());
                timestamped.put(
                    record.key(), ValueAndTimestamp.make(held == null ? 1 : held.value() + 1, record.timestamp() / 2));
            }
            context.forward(record.withTimestamp(record.timestamp() + 1000));
        }), "source")
            .addProcessor("child", each((context, record) -> {
                put(context, "plain", "child-" + record.key(), (long) ("" + record.value()).length());
                context.forward(record.withValue("" + context.<KeyValueStore<String, Long>>getStateStore("plain")
                    .get("" + record.key())));
            }), "count")
            .addStateStore(kit.plain("plain", Serdes.Long()), "count", "child")
            .addStateStore(kit.timestamped("timestamped", Serdes.Long()), "count");
        return Kit.sink(topology, "sink", "out", "child");
    }

    /** Values joined per window of 10 s, in each kind of window store. */
    private static Topology windows(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("join", each((context, record) -> {
            long start = record.timestamp() - record.timestamp() % WINDOW.toMillis();
            var plain = context.<WindowStore<String, String>>getStateStore("plain");
            var timed = context.<WindowStore<String, ValueAndTimestamp<String>>>getStateStore("timestamped");
            var headed = context.<WindowStore<String, ValueTimestampHeaders<String>>>getStateStore("headers");
            String key = record.key();
            if (record.value() == null) {
                plain.put(key, null, start);
                timed.put(key, null, start);
                headed.put(key, null, start);
            } else {
                ValueTimestampHeaders<String> held = headed.fetch(key, start);
                String joined = (held == null ? "" : held.value()) + record.value();
                plain.put(key, joined, start);
                timed.put(key, ValueAndTimestamp.make(joined, record.timestamp() + 3), start);
                headed.put(key, ValueTimestampHeaders.make(joined, record.timestamp(), record.headers()), start);
            }
            try (var found = headed.fetch(key, Math.max(0, start - 20_000), start)) {
                found.forEachRemaining(window -> context.forward(new Record<>(
                    key, window.key + "=" + window.value.value(), window.value.timestamp(), window.value.headers())));
            }
        }), "source")
            .addStateStore(kit.window("plain"), "join")
            .addStateStore(kit.timestampedWindow("timestamped"), "join")
            .addStateStore(kit.windowWithHeaders("headers"), "join");
        return Kit.sink(topology, "sink", "out", "join");
    }

    /** Sessions with a gap of 5 s, merged; headers are those of the latest record. */
    private static Topology sessions(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("merge", each((context, record) -> {
            var plain = context.<SessionStore<String, String>>getStateStore("plain");
            var headed = context.<SessionStore<String, AggregationWithHeaders<String>>>getStateStore("headers");
            long start = record.timestamp();
            long end = record.timestamp();
            String merged = "";
            var gone = new ArrayList<Windowed<String>>();
            try (var found = headed.findSessions(
                    record.key(), Math.max(0, record.timestamp() - GAP_MS), record.timestamp() + GAP_MS)) {
                while (found.hasNext()) {
                    var session = found.next();
                    gone.add(session.key);
                    start = Math.min(start, session.key.window().start());
                    end = Math.max(end, session.key.window().end());
                    merged += session.value.aggregation();
                }
            }
            for (Windowed<String> session : gone) {
                headed.remove(session);
                plain.remove(session);
                context.forward(new Record<>(record.key(), null, session.window().end(), record.headers()));
            }
            if (record.value() != null) {
                var session = new Windowed<>(record.key(), new SessionWindow(start, end));
                headed.put(session, AggregationWithHeaders.make(merged + record.value(), record.headers()));
                plain.put(session, merged + record.value());
                context.forward(record.withValue(start + "-" + end + ":" + merged + record.value()).withTimestamp(end));
            }
        }), "source")
            .addStateStore(kit.session("plain"), "merge")
            .addStateStore(kit.sessionWithHeaders("headers"), "merge");
        return Kit.sink(topology, "sink", "out", "merge");
    }

    /** Each record is a version; forwards what was valid 10 ms before it. */
    private static Topology versions(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("remember", each((context, record) -> {
            var versions = context.<VersionedKeyValueStore<String, String>>getStateStore("versions");
            if ("d".equals(record.value())) {
                versions.delete(record.key(), record.timestamp());
            } else {
                versions.put(record.key(), record.value(), record.timestamp());
            }
            VersionedRecord<String> before = versions.get(record.key(), Math.max(0, record.timestamp() - 10));
            VersionedRecord<String> latest = versions.get(record.key());
            context.forward(record.withValue(
                (before == null ? "none" : before.value() + "@" + before.timestamp())
                    + "," + (latest == null ? "none" : latest.value() + "@" + latest.timestamp())));
        }), "source").addStateStore(
            Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore("versions", RETENTION, Duration.ofMillis(20_000)),
                STRING, STRING),
            "remember");
        return Kit.sink(topology, "sink", "out", "remember");
    }

    /**
     * Keys are stored behind the tenant that the headers name, and read with the headers they were stored with. The
     * serde marks the headers that it serializes with; those of a record are marked by each read of it in Kafka Streams.
     */
    private static Topology tenantKeys(Kit kit) {
        Serde<String> keys = Serdes.serdeFrom(new Serializer<>() {
            @Override
            public byte[] serialize(String topic, String key) {
                throw new UnsupportedOperationException("no headers");
            }

            @Override
            public byte[] serialize(String topic, Headers headers, String key) {
                if (key == null) {
                    return null; // an open end of a range
                }
                headers.add("keyed", bytes(key));
                return bytes(tenant(headers) + "/" + key);
            }
        }, new Deserializer<>() {
            @Override
            public String deserialize(String topic, byte[] data) {
                throw new UnsupportedOperationException("no headers");
            }

            @Override
            public String deserialize(String topic, Headers headers, byte[] data) {
                return string(data) + " of " + tenant(headers);
            }
        });
        Topology topology = kit.topology("in").addProcessor("keep", each((context, record) -> {
            var plain = context.<KeyValueStore<String, ValueTimestampHeaders<String>>>getStateStore("plain");
            var windows = context.<WindowStore<String, ValueTimestampHeaders<String>>>getStateStore("windows");
            var sessions = context.<SessionStore<String, AggregationWithHeaders<String>>>getStateStore("sessions");
            var session = new Windowed<>(record.key(), new SessionWindow(0, 5));
            var found = new ArrayList<String>();
            found.add("" + ValueTimestampHeaders.getValueOrNull(plain.get(record.key())));
            found.add("" + ValueTimestampHeaders.getValueOrNull(windows.fetch(record.key(), 0)));
            found.add("" + AggregationWithHeaders.getAggregationOrNull(sessions.fetchSession(record.key(), 0, 5)));
            try (var range = plain.range(record.key(), record.key())) {
                range.forEachRemaining(pair -> found.add(pair.key));
            }
            record.headers().remove("keyed");
            if (record.value() == null) {
                found.add("" + ValueTimestampHeaders.getValueOrNull(plain.delete(record.key())));
                windows.put(record.key(), null, 0);
                sessions.remove(session);
            } else {
                var absent = ValueTimestampHeaders.make("absent", 7, new RecordHeaders(record.headers()));
                plain.putIfAbsent("absent-" + record.key(), absent);
                var held = ValueTimestampHeaders.make(
                    record.value(), record.timestamp(), new RecordHeaders(record.headers()));
                plain.put(record.key(), held);
                windows.put(
                    record.key(),
                    ValueTimestampHeaders.make(record.value(), record.timestamp(), new RecordHeaders(record.headers())),
                    0);
                sessions.put(
                    session, AggregationWithHeaders.make(record.value(), new RecordHeaders(record.headers())));
            }
            context.forward(record.withValue(String.join(",", found)));
        }), "source")
            .addStateStore(kit.withHeaders("plain", keys, STRING), "keep")
            .addStateStore(kit.windowWithHeaders("windows", keys), "keep")
            .addStateStore(kit.sessionWithHeaders("sessions", keys), "keep");
        return Kit.sink(topology, "sink", "out", "keep");
    }

    private static String tenant(Headers headers) {
        var found = headers.lastHeader("tenant");
        return found == null ? "nobody" : string(found.value());
    }

    /** Two schedules on stream time, which are never due for the same time. */
    private static Topology streamPunctuation(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("clock", each(context -> {
            context.schedule(Duration.ofMillis(10), PunctuationType.STREAM_TIME, now -> {
                put(context, "plain", "tick", "" + now);
                put(context, "timestamped", "tick", ValueAndTimestamp.make("" + now, 3));
                context.forward(new Record<>("tick", describe(context), now));
                put(context, "headers", "tick", ValueTimestampHeaders.make(
                    "" + now, now, new RecordHeaders().add("now", bytes("" + now))));
                context.forward(new Record<>("own", "" + now, 7, new RecordHeaders().add("own", bytes("1"))));
                put(context, "plain", "tick", null);
                put(context, "headers", "tick", null);
            });
            context.schedule(Instant.ofEpochMilli(7), Duration.ofMillis(25), PunctuationType.STREAM_TIME,
                now -> context.forward(new Record<>("anchored", "" + now, now)));
        }, (context, record) -> {
            put(context, "plain", "seen", record.value());
            context.forward(record);
        }), "source")
            .addProcessor("child", each((context, record) -> {
                put(context, "plain", "child", record.value());
                put(context, "headers", "child", null);
                context.forward(record);
            }), "clock")
            .addStateStore(kit.plain("plain", STRING), "clock", "child")
            .addStateStore(kit.timestamped("timestamped", STRING), "clock")
            .addStateStore(kit.withHeaders("headers", STRING), "clock", "child");
        return Kit.sink(topology, "sink", "out", "child");
    }

    /**
     * Three schedules on the wall clock: relative, anchored, and one that ends with its third call. They are never due
     * for the same time if the driver starts at 0, 3, 5 or 7 modulo 10.
     */
    private static Topology wallClockPunctuation(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("clock", each(context -> {
            context.schedule(Duration.ofMillis(10), PunctuationType.WALL_CLOCK_TIME, now -> {
                put(context, "plain", "tick", "" + now);
                context.forward(new Record<>("tick", describe(context), now));
            });
            context.schedule(Instant.ofEpochMilli(1004), Duration.ofMillis(20), PunctuationType.WALL_CLOCK_TIME,
                now -> context.forward(new Record<>("anchored", "" + now, now)));
            var calls = new ArrayList<Long>();
            var schedule = new Cancellable[1];
            Instant start = Instant.ofEpochMilli(1006);
            schedule[0] = context.schedule(start, Duration.ofMillis(25), PunctuationType.WALL_CLOCK_TIME, now -> {
                calls.add(now);
                context.forward(new Record<>("ending", "" + calls.size(), 5));
                if (calls.size() == 3) {
                    schedule[0].cancel();
                }
            });
            context.schedule(Duration.ofMillis(1), PunctuationType.WALL_CLOCK_TIME,
                now -> context.forward(new Record<>("never", "", now))).cancel();
        }, (context, record) -> context.forward(record.withValue(describe(context)))), "source")
            .addStateStore(kit.plain("plain", STRING), "clock");
        return Kit.sink(topology, "sink", "out", "clock");
    }

    /** Nine schedules that are due at the same times. */
    private static Topology punctuationsDueTogether(Kit kit) {
        Topology topology = kit.topology("in");
        String parent = "source";
        for (String name : List.of("p0", "p1", "p2")) {
            topology.addProcessor(name, each(context -> {
                for (int i = 0; i < 3; i++) {
                    String value = name + "." + i;
                    context.schedule(Duration.ofMillis(10), PunctuationType.WALL_CLOCK_TIME,
                        now -> context.forward(new Record<>("wall", value, now)));
                    context.schedule(Duration.ofMillis(10), PunctuationType.STREAM_TIME,
                        now -> context.forward(new Record<>("stream", value, now)));
                }
            }, (context, record) -> context.forward(record)), parent);
            parent = name;
        }
        return Kit.sink(topology, "sink", "out", "p2");
    }

    /** Joins with a global store, which is also written by a sink. */
    private static Topology globalStore(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("join", each((context, record) -> {
            var table = context.<KeyValueStore<String, ValueTimestampHeaders<String>>>getStateStore("table");
            ValueTimestampHeaders<String> held = record.key() == null ? null : table.get(record.key());
            context.forward(
                record.withKey(describe(context)).withValue(
                    record.value() + "+" + (held == null ? null : held.value() + "@" + held.timestamp())),
                "sink");
            if (("" + record.value()).startsWith("w")) {
                context.forward(record, "write");
            }
        }), "source");
        Kit.sink(topology, "sink", "out", "join");
        Kit.sink(topology, "write", "table-topic", "join");
        return topology.addGlobalStore(
            ((StoreBuilder<StateStore>) kit.withHeaders("table", STRING)).withLoggingDisabled(),
            "table-source", new StringDeserializer(), new StringDeserializer(), "table-topic", "table-processor",
            () -> new Processor<String, String, Void, Void>() {
                private ProcessorContext<Void, Void> context;

                @Override
                public void init(ProcessorContext<Void, Void> context) {
                    this.context = context;
                }

                @Override
                public void process(Record<String, String> record) {
                    put(context, "table", record.key(), ValueTimestampHeaders.make(
                        record.value() == null ? null : record.value() + " " + describe(context, false),
                        record.timestamp(), record.headers()));
                }
            });
    }

    /** Two sub-topologies: what the first writes is read by the second. */
    private static Topology linked(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("split", each((context, record) -> {
            context.forward(record.withKey(record.key() + "1"));
            context.forward(record.withKey(record.key() + "2").withTimestamp(record.timestamp() + 100));
        }), "source");
        Kit.sink(topology, "to-middle", "middle", "split");
        Kit.source(topology, "from-middle", "middle").addProcessor("follow", each(
            context -> context.schedule(Duration.ofMillis(50), PunctuationType.STREAM_TIME,
                now -> context.forward(new Record<>("tick", describe(context), now))),
            (context, record) -> {
                put(context, "seen", record.key(),
                    ValueTimestampHeaders.make(describe(context), record.timestamp(), record.headers()));
                context.forward(record.withValue(describe(context)));
            }), "from-middle").addStateStore(kit.withHeaders("seen", STRING), "follow");
        return Kit.sink(topology, "sink", "out", "follow");
    }

    /** The value says what is sent where: its characters a, b and c are sinks, digits times; each is a source too. */
    private static Topology fanOutToSources(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("scatter", each((context, record) -> {
            String value = "" + record.value();
            for (int i = 0; i + 1 < value.length(); i += 2) {
                String sink = value.substring(i, i + 1);
                if ("abc".contains(sink)) {
                    context.forward(
                        record.withValue(value.substring(i, i + 2)).withTimestamp(value.charAt(i + 1)), sink);
                }
            }
        }), "source");
        for (String name : List.of("a", "b", "c")) {
            Kit.sink(topology, name, "topic-" + name, "scatter");
            Kit.source(topology, "from-" + name, "topic-" + name);
        }
        topology.addProcessor("gather", each((context, record) ->
            context.forward(record.withValue(record.value() + " " + describe(context)))), "from-a", "from-b", "from-c");
        return Kit.sink(topology, "sink", "out", "gather");
    }

    /** Two sources whose processors share a store, and are one sub-topology by it. */
    private static Topology sharedStore(Kit kit) {
        Topology topology = kit.topology("left");
        Kit.source(topology, "other", "right")
            .addProcessor("put", each((context, record) -> {
                put(context, "shared", record.key(), record.value());
                context.forward(record);
            }), "source")
            .addProcessor("get", each((context, record) -> context.forward(record.withValue(
                context.<KeyValueStore<String, String>>getStateStore("shared").get(record.key())
                    + " " + context.currentStreamTimeMs()))), "other")
            .addStateStore(kit.plain("shared", STRING), "get", "put");
        Kit.sink(topology, "sink-get", "out", "get");
        return Kit.sink(topology, "sink-put", "out", "put");
    }

    /** A named child, all children, a sink that two nodes write to, and one whose topic is chosen. */
    private static Topology routing(Kit kit) {
        Topology topology = kit.topology("in");
        Kit.sink(topology, "copy", "out-copy", "source");
        topology.addProcessor("route", each((context, record) -> {
            String value = "" + record.value();
            if (value.startsWith("l")) {
                context.forward(record, "left");
            } else if (value.startsWith("r")) {
                context.forward(record.withTimestamp(record.timestamp() + 5), "right");
            } else if (value.startsWith("c")) {
                context.forward(record.withHeaders(new RecordHeaders().add("chosen", bytes("1"))), "chosen");
            } else {
                context.forward(record);
            }
        }), "source")
            .addProcessor("right", each((context, record) -> context.forward(record.withValue("R"))), "route")
            .addProcessor("left", each((context, record) -> {
                record.headers().add("left", null);
                context.forward(record);
            }), "route");
        Kit.sink(topology, "both", "out-both", "right", "left");
        topology.addSink("chosen", new Chosen(), new StringSerializer(), new StringSerializer(), "route", "left");
        return topology;
    }

    /** Named, so that describe() says something that can be compared. */
    private static final class Chosen implements TopicNameExtractor<String, String> {
        @Override
        public String extract(String key, String value, RecordContext context) {
            return "chosen-" + context.topic() + context.offset() % 2 + "-" + value;
        }

        @Override
        public String toString() {
            return "Chosen";
        }
    }

    /** Cached stores: one entry a key and record is logged. */
    private static Topology cached(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("write", each(
            context -> context.schedule(Duration.ofMillis(10), PunctuationType.WALL_CLOCK_TIME, now -> {
                put(context, "plain", "wall", "" + now);
                put(context, "plain", "wall", "last " + now);
            }), (context, record) -> {
                var headed = context.<KeyValueStore<String, ValueTimestampHeaders<String>>>getStateStore("headers");
                var window = context.<WindowStore<String, ValueTimestampHeaders<String>>>getStateStore("window");
                var session = context.<SessionStore<String, AggregationWithHeaders<String>>>getStateStore("session");
                String key = record.key();
                put(context, "plain", key, "first");
                put(context, "plain", "other", record.value());
                context.commit();
                put(context, "plain", key, record.value());
                headed.put(key, ValueTimestampHeaders.make("first", 1, new RecordHeaders()));
                headed.put("z", ValueTimestampHeaders.make("z", 2, record.headers()));
                if (record.value() == null) {
                    headed.delete(key);
                } else {
                    headed.put(key, ValueTimestampHeaders.make(record.value(), record.timestamp(), record.headers()));
                }
                long start = record.timestamp() - record.timestamp() % WINDOW.toMillis();
                window.put("w", ValueTimestampHeaders.make("first", 1, record.headers()), start);
                window.put(key, record.value() == null ? null : ValueTimestampHeaders.make(
                    record.value(), record.timestamp(), record.headers()), start);
                window.put("w", ValueTimestampHeaders.make("last", 2, new RecordHeaders()), start);
                var span = new Windowed<>(key, new SessionWindow(record.timestamp(), record.timestamp() + 5));
                session.put(span, AggregationWithHeaders.make("first", record.headers()));
                record.headers().add("late", bytes("1"));
                session.put(span, record.value() == null ? null : AggregationWithHeaders.make(
                    record.value(), record.headers()));
                ValueTimestampHeaders<String> held = headed.get(key);
                context.forward(record.withTimestamp(record.timestamp() + 50)
                    .withValue(held == null ? "none" : held.value()));
                put(context, "plain", "after", "x");
            }), "source")
            .addStateStore(kit.plain("plain", STRING).withCachingEnabled(), "write")
            .addStateStore(kit.withHeaders("headers", STRING).withCachingEnabled(), "write")
            .addStateStore(kit.windowWithHeaders("window").withCachingEnabled(), "write")
            .addStateStore(kit.sessionWithHeaders("session").withCachingEnabled(), "write");
        return Kit.sink(topology, "sink", "out", "write");
    }

    /** What a processor and a punctuator see of the record and of time. */
    private static Topology metadata(Kit kit) {
        Topology topology = kit.topology("in", "also-in").addProcessor("look", each(context -> {
            context.schedule(Duration.ofMillis(20), PunctuationType.STREAM_TIME,
                now -> context.forward(new Record<>("stream", describe(context), now)));
            context.schedule(Duration.ofMillis(20), PunctuationType.WALL_CLOCK_TIME,
                now -> context.forward(new Record<>("wall", describe(context), now)));
        }, (context, record) -> context.forward(record.withKey(describe(context) + " " + record.key()))), "source")
            .addProcessor("below", each((context, record) ->
                context.forward(record.withValue(record.value() + " " + describe(context)))), "look");
        return Kit.sink(topology, "sink", "out", "below");
    }

    private static String describe(ProcessorContext<?, ?> context) {
        return describe(context, true);
    }

    private static String describe(ProcessorContext<?, ?> context, boolean withStreamTime) {
        String record = context.recordMetadata()
            .filter(found -> found.topic() != null)
            .map(found -> found.topic() + "-" + found.partition() + "@" + found.offset())
            .orElse("none");
        String time = withStreamTime ? " stream " + context.currentStreamTimeMs() : "";
        return record + time + " wall " + context.currentSystemTimeMs();
    }

    /** The key says what goes wrong, below a processor that has already written. */
    private static Topology failing(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("above", each((context, record) -> {
            put(context, "plain", "" + record.key(), record.value());
            context.forward(record);
            put(context, "plain", "after-" + record.key(), record.value());
        }), "source").addProcessor("below", each((context, record) -> {
            switch ("" + record.key()) {
                case "raise" -> throw new IllegalStateException("raised");
                case "store" -> context.getStateStore("plain");
                case "child" -> context.forward(record, "nobody");
                case "time" -> context.forward(record.withTimestamp(-2));
                case "null" -> put(context, "own", null, record.value());
                default -> context.forward(record);
            }
        }), "above")
            .addStateStore(kit.plain("plain", STRING), "above")
            .addStateStore(kit.plain("own", STRING), "below");
        return Kit.sink(topology, "sink", "out", "below");
    }

    private static Topology failingInit(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("first", each(context -> {
            throw new IllegalStateException("raised");
        }, (context, record) -> { }), "source");
        return Kit.sink(topology, "sink", "out", "first");
    }

    private static Topology failingPunctuator(Kit kit) {
        Topology topology = kit.topology("in").addProcessor("clock", each(context -> {
            context.schedule(Duration.ofMillis(10), PunctuationType.STREAM_TIME, now -> {
                if (now >= 20) {
                    throw new IllegalStateException("raised at " + now);
                }
            });
            context.schedule(Duration.ofMillis(15), PunctuationType.WALL_CLOCK_TIME, now -> {
                throw new IllegalStateException("raised on the wall at " + now);
            });
        }, (context, record) -> context.forward(record)), "source");
        return Kit.sink(topology, "sink", "out", "clock");
    }

    /** For its description alone: names, stores and topics whose order is not that of their addition. */
    private static Topology manyNodes(Kit kit) {
        Topology topology = kit.topology("zeta", "b", "a");
        Kit.source(topology, "s2", "t2")
            .addProcessor("zz", pass(), "source")
            .addProcessor("aa", pass(), "source", "s2")
            .addProcessor("mm", pass(), "zz", "aa");
        Kit.sink(topology, "k2", "out2", "mm", "aa");
        Kit.sink(topology, "k1", "out1", "mm");
        topology.addStateStore(kit.plain("st2", STRING), "mm", "zz").addStateStore(kit.plain("st1", STRING), "mm")
            .addStateStore(kit.plain("another", STRING), "mm");
        Kit.source(topology, "s3", "out1").addProcessor("p3", pass(), "s3");
        Kit.source(topology, "s4", "t4").addProcessor("p4", pass(), "s4")
            .addStateStore(kit.plain("shared", STRING), "p3", "p4");
        topology.addGlobalStore(((StoreBuilder<StateStore>) kit.plain("global", STRING)).withLoggingDisabled(),
            "global-source", new StringDeserializer(), new StringDeserializer(), "global-topic", "global-processor",
            () -> new Processor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) { }
            });
        Kit.source(topology, "s5", "t5");
        return topology.addProcessor("p5", pass(), "s5");
    }

    private Topology graph(Kit kit) {
        Topology topology = new Topology();
        for (JsonNode added : scenario.get("graph")) {
            String name = added.get(1).asText();
            switch (added.get(0).asText()) {
                case "source" -> Kit.source(topology, name, names(added.get(2)));
                case "processor" -> topology.addProcessor(name, pass(), names(added.get(2)));
                case "sink" -> Kit.sink(topology, name, added.get(2).asText(), names(added.get(3)));
                case "store" -> topology.addStateStore(kit.plain(name, STRING), names(added.get(2)));
                case "global" -> global(topology, kit, name,
                    added.get(2).asText(), added.get(3).asText(), added.get(4).asText());
                default -> throw new IllegalArgumentException("can't add " + added);
            }
        }
        return topology;
    }

    private static String[] names(JsonNode list) {
        var names = new ArrayList<String>();
        list.forEach(name -> names.add(name.asText()));
        return names.toArray(String[]::new);
    }

    /** Topologies that can't be built. */
    private static void wrongTopologies() {
        wrong("node-twice", kit -> kit.topology("in").addProcessor("source", pass(), "source"));
        wrong("source-twice", kit -> Kit.source(kit.topology("in"), "source", "other"));
        wrong("sink-twice", kit -> Kit.sink(kit.topology("in"), "source", "out", "source"));
        wrong("topic-twice", kit -> Kit.source(kit.topology("in"), "other", "in"));
        wrong("no-topics", kit -> kit.topology());
        wrong("unknown-parent", kit -> kit.topology("in").addProcessor("p", pass(), "nobody"));
        wrong("unknown-parent-of-sink", kit -> Kit.sink(kit.topology("in"), "sink", "out", "nobody"));
        wrong("own-parent", kit -> kit.topology("in").addProcessor("p", pass(), "p"));
        wrong("no-parents", kit -> kit.topology("in").addProcessor("p", pass()));
        wrong("sink-as-parent",
            kit -> Kit.sink(kit.topology("in"), "sink", "out", "source").addProcessor("p", pass(), "sink"));
        wrong("two-stores-of-one-name", kit -> kit.topology("in").addProcessor("p", pass(), "source")
            .addStateStore(kit.plain("store", STRING), "p").addStateStore(kit.plain("store", STRING), "p"));
        wrong("store-of-unknown-processor",
            kit -> kit.topology("in").addStateStore(kit.plain("store", STRING), "nobody"));
        wrong("store-of-source", kit -> kit.topology("in").addStateStore(kit.plain("store", STRING), "source"));
        wrong("unknown-store", kit -> kit.topology("in").addProcessor("p", pass(), "source")
            .connectProcessorAndStateStores("p", "nothing"));
        wrong("global-topic-is-read", kit -> global(kit.topology("in"), kit, "table", "g", "in", "gp"));
        wrong("topic-of-global-store",
            kit -> Kit.source(global(kit.topology("in"), kit, "table", "g", "gt", "gp"), "other", "gt"));
        wrong("global-names-equal", kit -> global(kit.topology("in"), kit, "table", "g", "gt", "g"));
        wrong("global-source-twice", kit -> global(kit.topology("in"), kit, "table", "source", "gt", "gp"));
        wrong("global-store-twice", kit -> global(
            global(kit.topology("in"), kit, "table", "g", "gt", "gp"), kit, "table", "g2", "gt2", "gp2"));
        wrong("global-store-of-processor", kit -> global(
            kit.topology("in").addProcessor("p", pass(), "source"), kit, "table", "g", "gt", "gp")
            .connectProcessorAndStateStores("p", "table"));
    }

    private static void wrong(String name, Function<Kit, Topology> build) {
        TOPOLOGIES.put("wrong-" + name, build);
    }

    private static Topology global(
            Topology topology, Kit kit, String store, String source, String topic, String processor) {
        return topology.addGlobalStore(((StoreBuilder<StateStore>) kit.plain(store, STRING)).withLoggingDisabled(),
            source, new StringDeserializer(), new StringDeserializer(), topic, processor,
            () -> new Processor<String, String, Void, Void>() {
                @Override
                public void process(Record<String, String> record) { }
            });
    }
}
