import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.internals.Change;
import org.apache.kafka.streams.kstream.internals.KTableImpl;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs programs of Kafka Streams' DSL through its own TopologyTestDriver and says what came out, as JSON.
 *
 * <p>Reads a JSON list of scenarios from standard input and prints the list of their results. A scenario is
 * {@code {"program": [STATEMENT, ...], "steps": [...], "initial_wall_clock_ms": N, "persistent": BOOLEAN,
 * "caching": BOOLEAN, "config": {NAME: VALUE}}}, with the steps of {@link DriverRun}. A statement is an object with
 * "op" and mostly "id", the name by which later ones call it "of" or "other"; tests/support/twins/dsl_programs.py makes
 * them, and says what else is in each. A result has "describe", the text of the topology; "emitted", for each step the
 * records of each topic; "stores"; "topics", what was written when the driver was closed; and "dropped", the task's
 * count of dropped records. One that can't be built or started has "error".
 */
@SuppressWarnings({"unchecked", "rawtypes"})
public final class RunDsl {

    private static final ObjectMapper JSON = new ObjectMapper();
    /** A time difference that before and after replace; each may be negative, if the other makes up for it. */
    private static final long NARROWED_MS = 1_000_000;
    private static final Map<String, Serde> SERDES = Map.of("string", Serdes.String(), "long", Serdes.Long());

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        var results = new ArrayList<Map<String, Object>>();
        for (JsonNode scenario : JSON.readTree(System.in)) {
            results.add(new RunDsl(scenario).run());
        }
        answers.println(JSON.writeValueAsString(results));
    }

    // ---- Running a scenario

    private final JsonNode scenario;
    private final Map<String, Object> made = new HashMap<>();
    private final List<JsonNode> changes = new ArrayList<>();

    private RunDsl(JsonNode scenario) {
        this.scenario = scenario;
    }

    private Map<String, Object> run() {
        var result = new LinkedHashMap<String, Object>();
        TopologyTestDriver driver;
        try {
            Properties config = config();
            Topology topology = topology(config);
            result.put("describe", topology.describe().toString());
            Instant start = Instant.ofEpochMilli(scenario.path("initial_wall_clock_ms").asLong());
            driver = new TopologyTestDriver(topology, config, start);
        } catch (RuntimeException failure) {
            result.put("error", DriverRun.messages(failure));
            return result;
        }
        var run = new DriverRun(driver);
        var emitted = new ArrayList<Object>();
        for (JsonNode step : scenario.get("steps")) {
            Object outcome = run.outcome(step);
            emitted.add(outcome == null ? news(run) : outcome);
        }
        result.put("emitted", emitted);
        result.put("dropped", dropped(driver));
        Map<String, Object> stores = run.stores();
        // What these hold has no public interface.
        stores.replaceAll((name, held) -> name.toUpperCase(Locale.ROOT).contains("-SUBSCRIPTION-ST") ? null : held);
        result.put("stores", stores);
        driver.close();
        result.put("topics", news(run));
        return result;
    }

    /** What no step has read, of topics that have any. */
    private static Map<String, List<Object>> news(DriverRun run) {
        Map<String, List<Object>> news = run.topics();
        news.values().removeIf(List::isEmpty);
        return news;
    }

    private static long dropped(TopologyTestDriver driver) {
        return driver.metrics().entrySet().stream()
            .filter(metric -> metric.getKey().name().equals("dropped-records-total"))
            .filter(metric -> metric.getKey().group().equals("stream-task-metrics"))
            .mapToLong(metric -> ((Number) metric.getValue().metricValue()).longValue())
            .sum();
    }

    private Properties config() {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        if (!scenario.path("persistent").asBoolean()) {
            config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        if (!scenario.path("caching").asBoolean()) {
            config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        }
        scenario.path("config").fields().forEachRemaining(
            entry -> config.put(entry.getKey(), JSON.convertValue(entry.getValue(), Object.class)));
        return config;
    }

    // ---- Building what a program says

    private StreamsBuilder builder;

    private Topology topology(Properties config) {
        builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
        for (JsonNode statement : scenario.get("program")) {
            Object found = perform(statement);
            if (found != null) {
                made.put(statement.get("id").asText(), found);
            }
        }
        Topology topology = builder.build(config);
        for (JsonNode statement : changes) {
            addChanges(topology, statement);
        }
        return topology;
    }

    private Object perform(JsonNode statement) {
        Object of = made.get(statement.path("of").asText());
        String op = statement.get("op").asText();
        if (op.endsWith("oin")) {
            return join(op, of, made.get(statement.get("other").asText()), statement);
        }
        return switch (op) {
            case "stream" -> builder.stream(text(statement, "topic"), consumed(statement));
            case "table" -> statement.has("materialized")
                ? builder.table(text(statement, "topic"), consumed(statement), materialized(statement))
                : builder.table(text(statement, "topic"), consumed(statement));
            case "global_table" -> statement.has("materialized")
                ? builder.globalTable(text(statement, "topic"), consumed(statement), materialized(statement))
                : builder.globalTable(text(statement, "topic"), consumed(statement));
            case "state_store" -> {
                builder.addStateStore(Stores.keyValueStoreBuilder(
                    Stores.inMemoryKeyValueStore(text(statement, "name")), Serdes.String(), Serdes.Long()));
                yield null;
            }
            case "process" -> {
                ProcessorSupplier numbered = () -> new Numbered(text(statement, "store"));
                yield of(statement, named -> ((KStream) of).process(numbered, named, text(statement, "store")),
                    () -> ((KStream) of).process(numbered, text(statement, "store")));
            }
            case "process_values" -> {
                FixedKeyProcessorSupplier numbered = () -> new NumberedValues(text(statement, "store"));
                yield of(statement, named -> ((KStream) of).processValues(numbered, named, text(statement, "store")),
                    () -> ((KStream) of).processValues(numbered, text(statement, "store")));
            }
            case "to" -> {
                ((KStream) of).to(text(statement, "topic"), produced(statement));
                yield null;
            }
            case "changes" -> {
                // A table sends old values if one of its children wants them, before the topology is built.
                ((KTableImpl) of).enableSendingOldValues(true);
                changes.add(statement);
                yield null;
            }
            case "to_stream" -> {
                KTable table = (KTable) of;
                KeyValueMapper map = statement.has("mapper") ? newKey(statement) : null;
                yield map == null
                    ? of(statement, named -> table.toStream(named), () -> table.toStream())
                    : of(statement, named -> table.toStream(map, named), () -> table.toStream(map));
            }
            case "to_table" -> toTable((KStream) of, statement);
            case "merge" -> merge((KStream) of, (KStream) made.get(text(statement, "other")), statement);
            case "group_by_key" -> ((KStream) of).groupByKey(grouped(statement));
            case "group_by" -> ((KStream) of).groupBy(newKey(statement), grouped(statement));
            case "repartition" -> ((KStream) of).repartition(repartitioned(statement));
            case "group_table" -> ((KTable) of).groupBy((key, value) -> pair(statement, key, value), grouped(statement));
            case "cogroup" -> {
                Aggregator aggregator = function(AGGREGATORS, statement, "aggregator")::apply;
                yield statement.has("other")
                    ? ((CogroupedKStream) made.get(text(statement, "other"))).cogroup((KGroupedStream) of, aggregator)
                    : ((KGroupedStream) of).cogroup(aggregator);
            }
            case "windowed_by" -> windowedBy(of, statement);
            case "emit_strategy" -> emitStrategy(of, text(statement, "on"));
            case "count", "reduce", "aggregate" -> aggregated(of, statement);
            case "suppress" -> ((KTable) of).suppress(suppressed(statement));
            case "branch" -> {
                ((BranchedKStream) of).branch(predicate(statement), branched(statement));
                yield null;
            }
            case "default_branch" -> {
                ((BranchedKStream) of).defaultBranch(branched(statement));
                yield null;
            }
            default -> of instanceof KTable table ? ofTable(table, statement) : ofStream((KStream) of, statement);
        };
    }

    private static Object ofStream(KStream of, JsonNode statement) {
        return switch (text(statement, "op")) {
            case "filter" -> {
                Predicate test = predicate(statement);
                yield of(statement, named -> of.filter(test, named), () -> of.filter(test));
            }
            case "filter_not" -> {
                Predicate test = predicate(statement);
                yield of(statement, named -> of.filterNot(test, named), () -> of.filterNot(test));
            }
            case "map_values" -> {
                Two keyed = KEYED_MAPPERS.get(text(statement, "mapper"));
                ValueMapperWithKey with = keyed == null ? null : keyed::apply;
                ValueMapper map = keyed == null ? mapper(statement) : null;
                yield keyed == null
                    ? of(statement, named -> of.mapValues(map, named), () -> of.mapValues(map))
                    : of(statement, named -> of.mapValues(with, named), () -> of.mapValues(with));
            }
            case "flat_map_values" -> {
                ValueMapper map = flatMapper(statement);
                yield of(statement, named -> of.flatMapValues(map, named), () -> of.flatMapValues(map));
            }
            case "map" -> {
                KeyValueMapper map = (key, value) -> pairs(statement, key, value).get(0);
                yield of(statement, named -> of.map(map, named), () -> of.map(map));
            }
            case "flat_map" -> {
                KeyValueMapper map = (key, value) -> pairs(statement, key, value);
                yield of(statement, named -> of.flatMap(map, named), () -> of.flatMap(map));
            }
            case "foreach" -> {
                ForeachAction action = (key, value) -> { };
                if (statement.has("name")) {
                    of.foreach(action, Named.as(text(statement, "name")));
                } else {
                    of.foreach(action);
                }
                yield null;
            }
            case "split" -> of(statement, of::split, of::split);
            case "select_key" -> {
                KeyValueMapper map = newKey(statement);
                yield of(statement, named -> of.selectKey(map, named), () -> of.selectKey(map));
            }
            default -> throw new IllegalArgumentException("no such statement: " + statement);
        };
    }

    /** The stream of a branch is what its statement makes. */
    private Branched branched(JsonNode statement) {
        java.util.function.Consumer<KStream> keep = stream -> made.put(text(statement, "id"), stream);
        return statement.has("name")
            ? Branched.withConsumer((java.util.function.Consumer) keep, text(statement, "name"))
            : Branched.withConsumer((java.util.function.Consumer) keep);
    }

    private static Object ofTable(KTable of, JsonNode statement) {
        boolean stored = statement.has("materialized");
        return switch (text(statement, "op")) {
            case "filter" -> {
                Predicate test = predicate(statement);
                yield stored
                    ? of(statement, named -> of.filter(test, named, materialized(statement)),
                        () -> of.filter(test, materialized(statement)))
                    : of(statement, named -> of.filter(test, named), () -> of.filter(test));
            }
            case "filter_not" -> {
                Predicate test = predicate(statement);
                yield stored
                    ? of(statement, named -> of.filterNot(test, named, materialized(statement)),
                        () -> of.filterNot(test, materialized(statement)))
                    : of(statement, named -> of.filterNot(test, named), () -> of.filterNot(test));
            }
            case "map_values" -> {
                ValueMapper map = mapper(statement);
                yield stored
                    ? of(statement, named -> of.mapValues(map, named, materialized(statement)),
                        () -> of.mapValues(map, materialized(statement)))
                    : of(statement, named -> of.mapValues(map, named), () -> of.mapValues(map));
            }
            default -> throw new IllegalArgumentException("no such statement: " + statement);
        };
    }

    private interface Make {
        Object make();
    }

    /** What is made with the name that the statement says, or without one. */
    private static Object of(JsonNode statement, Function<Named, Object> named, Make unnamed) {
        return statement.has("name") ? named.apply(Named.as(text(statement, "name"))) : unnamed.make();
    }

    private static Object toTable(KStream of, JsonNode statement) {
        Materialized materialized = statement.has("materialized")
            ? materialized(statement) : Materialized.with(Serdes.String(), serde(statement, "value"));
        return of(statement, named -> of.toTable(named, materialized), () -> of.toTable(materialized));
    }

    private static Object merge(KStream of, KStream other, JsonNode statement) {
        return of(statement, named -> of.merge(other, named), () -> of.merge(other));
    }

    private static Object windowedBy(Object of, JsonNode statement) {
        CogroupedKStream several = of instanceof CogroupedKStream cogrouped ? cogrouped : null;
        KGroupedStream one = several == null ? (KGroupedStream) of : null;
        return switch (text(statement, "kind")) {
            case "time" -> {
                TimeWindows tumbling =
                    TimeWindows.ofSizeAndGrace(time(statement, "size_ms"), time(statement, "grace_ms"));
                TimeWindows windows = statement.has("advance_ms")
                    ? tumbling.advanceBy(time(statement, "advance_ms")) : tumbling;
                yield several == null ? one.windowedBy(windows) : several.windowedBy(windows);
            }
            case "sliding" -> {
                SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(
                    time(statement, "difference_ms"), time(statement, "grace_ms"));
                yield several == null ? one.windowedBy(windows) : several.windowedBy(windows);
            }
            case "session" -> {
                SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(
                    time(statement, "gap_ms"), time(statement, "grace_ms"));
                yield several == null ? one.windowedBy(windows) : several.windowedBy(windows);
            }
            default -> throw new IllegalArgumentException("no such windows: " + statement);
        };
    }

    private static Object emitStrategy(Object of, String on) {
        EmitStrategy strategy = on.equals("window_close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        return of instanceof SessionWindowedKStream sessions
            ? sessions.emitStrategy(strategy) : ((TimeWindowedKStream) of).emitStrategy(strategy);
    }

    private static Object aggregated(Object of, JsonNode statement) {
        Materialized stored = statement.has("materialized") ? materialized(statement) : null;
        Materialized unnamed = Materialized.with(Serdes.String(), serde(statement, "value"));
        Named named = statement.has("name") ? Named.as(text(statement, "name")) : null;
        return switch (text(statement, "op")) {
            case "count" -> count(of, named, stored);
            case "reduce" -> reduce(of, statement, (old, added) -> function(REDUCERS, statement, "reducer").apply(old, added),
                named, stored == null ? unnamed : stored);
            default -> aggregate(of, statement, named, stored == null ? unnamed : stored);
        };
    }

    private static Object count(Object of, Named named, Materialized stored) {
        if (of instanceof KGroupedTable grouped) {
            return stored == null
                ? named == null ? grouped.count() : grouped.count(named)
                : named == null ? grouped.count(stored) : grouped.count(named, stored);
        }
        if (of instanceof KGroupedStream grouped) {
            return stored == null
                ? named == null ? grouped.count() : grouped.count(named)
                : named == null ? grouped.count(stored) : grouped.count(named, stored);
        } else if (of instanceof TimeWindowedKStream windowed) {
            return stored == null
                ? named == null ? windowed.count() : windowed.count(named)
                : named == null ? windowed.count(stored) : windowed.count(named, stored);
        }
        SessionWindowedKStream sessions = (SessionWindowedKStream) of;
        return stored == null
            ? named == null ? sessions.count() : sessions.count(named)
            : named == null ? sessions.count(stored) : sessions.count(named, stored);
    }

    private static Object reduce(
            Object of, JsonNode statement, Reducer reducer, Named named, Materialized stored) {
        if (of instanceof KGroupedTable grouped) {
            Reducer subtractor = (old, gone) -> function(REDUCERS, statement, "subtractor").apply(old, gone);
            return named == null
                ? grouped.reduce(reducer, subtractor, stored) : grouped.reduce(reducer, subtractor, named, stored);
        }
        if (of instanceof KGroupedStream grouped) {
            return named == null ? grouped.reduce(reducer, stored) : grouped.reduce(reducer, named, stored);
        } else if (of instanceof TimeWindowedKStream windowed) {
            return named == null ? windowed.reduce(reducer, stored) : windowed.reduce(reducer, named, stored);
        }
        SessionWindowedKStream sessions = (SessionWindowedKStream) of;
        return named == null ? sessions.reduce(reducer, stored) : sessions.reduce(reducer, named, stored);
    }

    private static Object aggregate(Object of, JsonNode statement, Named named, Materialized stored) {
        Initializer initial = () -> value(statement.get("initial"), text(statement, "value"));
        if (of instanceof CogroupedKStream several) {
            return named == null ? several.aggregate(initial, stored) : several.aggregate(initial, named, stored);
        } else if (of instanceof TimeWindowedCogroupedKStream several) {
            return named == null ? several.aggregate(initial, stored) : several.aggregate(initial, named, stored);
        } else if (of instanceof SessionWindowedCogroupedKStream several) {
            Merger merger = merger(statement);
            return named == null
                ? several.aggregate(initial, merger, stored) : several.aggregate(initial, merger, named, stored);
        }
        Three each = function(AGGREGATORS, statement, "aggregator");
        Aggregator aggregator = each::apply;
        if (of instanceof KGroupedTable grouped) {
            Aggregator subtractor = function(AGGREGATORS, statement, "subtractor")::apply;
            return named == null
                ? grouped.aggregate(initial, aggregator, subtractor, stored)
                : grouped.aggregate(initial, aggregator, subtractor, named, stored);
        } else if (of instanceof KGroupedStream grouped) {
            return named == null
                ? grouped.aggregate(initial, aggregator, stored)
                : grouped.aggregate(initial, aggregator, named, stored);
        } else if (of instanceof TimeWindowedKStream windowed) {
            return named == null
                ? windowed.aggregate(initial, aggregator, stored)
                : windowed.aggregate(initial, aggregator, named, stored);
        }
        Merger merger = merger(statement);
        SessionWindowedKStream sessions = (SessionWindowedKStream) of;
        return named == null
            ? sessions.aggregate(initial, aggregator, merger, stored)
            : sessions.aggregate(initial, aggregator, merger, named, stored);
    }

    private static Merger merger(JsonNode statement) {
        Two both = function(REDUCERS, statement, "merger");
        return (key, left, right) -> both.apply(left, right);
    }

    private static Suppressed suppressed(JsonNode statement) {
        Suppressed.BufferConfig buffer = null;
        if (statement.has("max_records")) {
            buffer = Suppressed.BufferConfig.maxRecords(statement.get("max_records").asLong());
        }
        if (statement.has("max_bytes")) {
            long bytes = statement.get("max_bytes").asLong();
            buffer = buffer == null ? Suppressed.BufferConfig.maxBytes(bytes) : buffer.withMaxBytes(bytes);
        }
        buffer = buffer == null ? Suppressed.BufferConfig.unbounded() : buffer;
        if (statement.has("full")) {
            buffer = text(statement, "full").equals("shut_down") ? buffer.shutDownWhenFull() : buffer.emitEarlyWhenFull();
        }
        Suppressed suppressed = text(statement, "until").equals("window_closes")
            ? Suppressed.untilWindowCloses((Suppressed.StrictBufferConfig) buffer)
            : Suppressed.untilTimeLimit(time(statement, "limit_ms"), buffer);
        return statement.has("name") ? suppressed.withName(text(statement, "name")) : suppressed;
    }

    // ---- Joins

    private static Object join(String op, Object of, Object other, JsonNode statement) {
        if (of instanceof KTable left) {
            ValueJoiner joiner = function(JOINERS, statement, "joiner")::apply;
            return statement.has("foreign_key")
                ? joinByForeignKey(op, left, (KTable) other, joiner, statement)
                : joinTables(op, left, (KTable) other, joiner, statement);
        }
        Three keyed = KEYED_JOINERS.get(text(statement, "joiner"));
        Two plain = keyed == null ? function(JOINERS, statement, "joiner") : null;
        ValueJoinerWithKey joiner = (key, l, r) -> keyed == null ? plain.apply(l, r) : keyed.apply(key, l, r);
        KStream left = (KStream) of;
        if (other instanceof KStream right) {
            return joinStreams(op, left, right, joiner, statement);
        } else if (other instanceof KTable right) {
            Joined joined = Joined.with(Serdes.String(), serde(statement, "left_value"), serde(statement, "right_value"));
            joined = statement.has("name") ? joined.withName(text(statement, "name")) : joined;
            joined = statement.has("grace_ms") ? joined.withGracePeriod(time(statement, "grace_ms")) : joined;
            return op.equals("join") ? left.join(right, joiner, joined) : left.leftJoin(right, joiner, joined);
        }
        Object[] choices = {other};
        GlobalKTable right = (GlobalKTable) choices[0];
        KeyValueMapper mapper = (key, value) -> function(KEYS, statement, "key_mapper").apply(key, value);
        return op.equals("join")
            ? of(statement, named -> left.join(right, mapper, joiner, named), () -> left.join(right, mapper, joiner))
            : of(statement, named -> left.leftJoin(right, mapper, joiner, named),
                () -> left.leftJoin(right, mapper, joiner));
    }

    private static Object joinStreams(
            String op, KStream left, KStream right, ValueJoinerWithKey joiner, JsonNode statement) {
        JoinWindows windows =
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(NARROWED_MS), time(statement, "grace_ms"))
                .before(time(statement, "before_ms")).after(time(statement, "after_ms"));
        StreamJoined joined =
            StreamJoined.with(Serdes.String(), serde(statement, "left_value"), serde(statement, "right_value"));
        joined = statement.has("name") ? joined.withName(text(statement, "name")) : joined;
        joined = statement.has("store_name") ? joined.withStoreName(text(statement, "store_name")) : joined;
        return switch (op) {
            case "join" -> left.join(right, joiner, windows, joined);
            case "left_join" -> left.leftJoin(right, joiner, windows, joined);
            default -> left.outerJoin(right, joiner, windows, joined);
        };
    }

    private static Object joinByForeignKey(
            String op, KTable left, KTable right, ValueJoiner joiner, JsonNode statement) {
        BiFunction foreignKey = (key, value) -> function(FOREIGN_KEYS, statement, "foreign_key").apply(key, value);
        TableJoined joined = statement.has("name") ? TableJoined.as(text(statement, "name")) : TableJoined.with(null, null);
        return op.equals("join")
            ? left.join(right, foreignKey, joiner, joined, materialized(statement))
            : left.leftJoin(right, foreignKey, joiner, joined, materialized(statement));
    }

    private static Object joinTables(String op, KTable left, KTable right, ValueJoiner joiner, JsonNode statement) {
        boolean stored = statement.has("materialized");
        return switch (op) {
            case "join" -> stored
                ? of(statement, named -> left.join(right, joiner, named, materialized(statement)),
                    () -> left.join(right, joiner, materialized(statement)))
                : of(statement, named -> left.join(right, joiner, named), () -> left.join(right, joiner));
            case "left_join" -> stored
                ? of(statement, named -> left.leftJoin(right, joiner, named, materialized(statement)),
                    () -> left.leftJoin(right, joiner, materialized(statement)))
                : of(statement, named -> left.leftJoin(right, joiner, named), () -> left.leftJoin(right, joiner));
            default -> stored
                ? of(statement, named -> left.outerJoin(right, joiner, named, materialized(statement)),
                    () -> left.outerJoin(right, joiner, materialized(statement)))
                : of(statement, named -> left.outerJoin(right, joiner, named), () -> left.outerJoin(right, joiner));
        };
    }

    // ---- What the table above it sends on, old and new

    /** Add a processor that writes "old->new" of each change of a table to a topic. */
    private void addChanges(Topology topology, JsonNode statement) {
        String parent = parentName(made.get(text(statement, "of")));
        String name = text(statement, "topic") + "-changes";
        topology.addProcessor(name, () -> new Processor<Object, Change<Object>, Object, Object>() {
            private ProcessorContext<Object, Object> context;

            @Override
            public void init(ProcessorContext<Object, Object> context) {
                this.context = context;
            }

            @Override
            public void process(Record<Object, Change<Object>> record) {
                Change<Object> change = record.value();
                context.forward(record.withValue(change.oldValue + "->" + change.newValue));
            }
        }, parent);
        Serde keys = keySerde(statement);
        topology.addSink(text(statement, "topic") + "-sink", text(statement, "topic"),
            keys.serializer(), Serdes.String().serializer(), name);
    }

    /** Sends on each value with how many its key has had, and each number by its value. */
    private static final class Numbered implements Processor<Object, Object, Object, Object> {
        private final String name;
        private ProcessorContext<Object, Object> context;

        private Numbered(String name) {
            this.name = name;
        }

        @Override
        public void init(ProcessorContext<Object, Object> context) {
            this.context = context;
        }

        @Override
        public void process(Record<Object, Object> record) {
            long number = next(context.getStateStore(name), record.key());
            context.forward(record.withValue(number + ":" + record.value()));
            context.forward(record.withKey("" + record.value()).withValue("" + number));
        }
    }

    private static final class NumberedValues implements FixedKeyProcessor<Object, Object, Object> {
        private final String name;
        private FixedKeyProcessorContext<Object, Object> context;

        private NumberedValues(String name) {
            this.name = name;
        }

        @Override
        public void init(FixedKeyProcessorContext<Object, Object> context) {
            this.context = context;
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            long number = next(context.getStateStore(name), record.key());
            context.forward(record.withValue(number + ":" + record.value()));
        }
    }

    private static long next(KeyValueStore<Object, Long> numbers, Object key) {
        if (key == null) {
            return 0;
        }
        Long before = numbers.get(key);
        numbers.put(key, before == null ? 1 : before + 1);
        return before == null ? 1 : before + 1;
    }

    private static String parentName(Object table) {
        try {
            var field = table.getClass().getSuperclass().getDeclaredField("name");
            field.setAccessible(true);
            return (String) field.get(table);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    // ---- Parts of statements

    private static String text(JsonNode statement, String name) {
        JsonNode found = statement.get(name);
        if (found == null) {
            throw new IllegalArgumentException("no " + name + ": " + statement);
        }
        return found.asText();
    }

    private static Duration time(JsonNode statement, String name) {
        text(statement, name);
        return Duration.ofMillis(statement.get(name).asLong());
    }

    private static Serde serde(JsonNode statement, String name) {
        return Objects.requireNonNull(SERDES.get(text(statement, name)));
    }

    private static Object value(JsonNode json, String kind) {
        return json.isNull() ? null : kind.equals("long") ? (Object) json.asLong() : json.asText();
    }

    private static Serde keySerde(JsonNode statement) {
        return switch (statement.path("key").asText("string")) {
            case "string" -> Serdes.String();
            case "windowed" -> WindowedSerdes.timeWindowedSerdeFrom(String.class, statement.get("size_ms").asLong());
            case "session" -> WindowedSerdes.sessionWindowedSerdeFrom(String.class);
            default -> throw new IllegalArgumentException("no such key: " + statement);
        };
    }

    private static Consumed consumed(JsonNode statement) {
        Consumed consumed = Consumed.with(Serdes.String(), serde(statement, "value"));
        return statement.has("name") ? consumed.withName(text(statement, "name")) : consumed;
    }

    private static Grouped grouped(JsonNode statement) {
        Grouped grouped = Grouped.with(Serdes.String(), serde(statement, "value"));
        return statement.has("name") ? grouped.withName(text(statement, "name")) : grouped;
    }

    private static Repartitioned repartitioned(JsonNode statement) {
        Repartitioned repartitioned = Repartitioned.with(Serdes.String(), serde(statement, "value"));
        return statement.has("name") ? repartitioned.withName(text(statement, "name")) : repartitioned;
    }

    private static Produced produced(JsonNode statement) {
        Produced produced = Produced.with(keySerde(statement), serde(statement, "value"));
        return statement.has("name") ? produced.withName(text(statement, "name")) : produced;
    }

    private static Materialized materialized(JsonNode statement) {
        JsonNode asked = statement.get("materialized");
        Materialized made = asked.has("history_ms")
            ? Materialized.as(
                Stores.persistentVersionedKeyValueStore(text(asked, "name"), time(asked, "history_ms")))
            : asked.has("name")
                ? Materialized.<Object, Object, StateStore>as(text(asked, "name"))
                : Materialized.<Object, Object, StateStore>with(null, null);
        // Aggregations put the window into the key themselves.
        boolean aggregates = List.of("count", "reduce", "aggregate").contains(text(statement, "op"));
        made = made.withKeySerde(aggregates ? Serdes.String() : keySerde(statement));
        made = made.withValueSerde(serde(statement, "value"));
        return asked.has("retention_ms") ? made.withRetention(time(asked, "retention_ms")) : made;
    }

    private static Predicate predicate(JsonNode statement) {
        Two test = function(PREDICATES, statement, "predicate");
        return (key, value) -> (Boolean) test.apply(key, value);
    }

    private static KeyValueMapper newKey(JsonNode statement) {
        return (key, value) -> function(MAPPERS, statement, "mapper").apply(value);
    }

    private static ValueMapper mapper(JsonNode statement) {
        One map = function(MAPPERS, statement, "mapper");
        return map::apply;
    }

    private static List<KeyValue<Object, Object>> pairs(JsonNode statement, Object key, Object value) {
        return switch (text(statement, "mapper")) {
            case "swap" -> List.of(KeyValue.pair("" + value, key));
            case "both" -> List.of(KeyValue.pair(key, value), KeyValue.pair("" + value, value));
            case "none_if_x" -> isX(value) ? List.of() : List.of(KeyValue.pair(key, value));
            default -> throw new IllegalArgumentException("no such mapper: " + statement);
        };
    }

    private static KeyValue<Object, Object> pair(JsonNode statement, Object key, Object value) {
        if (text(statement, "mapper").equals("by_size")) {
            return KeyValue.pair(isX(value) ? null : "" + size(value), value);
        }
        return pairs(statement, key, value).get(0);
    }

    private static ValueMapper flatMapper(JsonNode statement) {
        One map = function(FLAT_MAPPERS, statement, "mapper");
        return value -> (Iterable<Object>) map.apply(value);
    }

    // ---- The functions that statements name, as in tests/support/twins/dsl_functions.py

    private interface One {
        Object apply(Object value);
    }

    private interface Two {
        Object apply(Object first, Object second);
    }

    private interface Three {
        Object apply(Object key, Object value, Object aggregate);
    }

    private static <F> F function(Map<String, F> functions, JsonNode statement, String name) {
        F found = functions.get(text(statement, name));
        if (found == null) {
            throw new IllegalArgumentException("no such " + name + ": " + statement);
        }
        return found;
    }

    /** How long a text is, or what a number is. */
    private static long size(Object value) {
        return value == null ? 0 : value instanceof Long number ? number : ((String) value).length();
    }

    private static Object lesser(Object first, Object second) {
        if (first == null || second == null) {
            return first == null ? second : first;
        }
        return ((Comparable) first).compareTo(second) <= 0 ? first : second;
    }

    private static boolean isX(Object value) {
        return "x".equals(value);
    }

    private static final Map<String, One> MAPPERS = Map.of(
        "text", value -> "" + value,
        "upper", value -> value == null ? null : ((String) value).toUpperCase(Locale.ROOT),
        "append_x", value -> value == null ? null : value + "x",
        "size", RunDsl::size,
        "null_if_x", value -> isX(value) ? null : value);

    private static final Map<String, Two> KEYED_MAPPERS = Map.of("key_and_text", (key, value) -> key + ":" + value);

    private static final Map<String, One> FLAT_MAPPERS = Map.of(
        "letters", value -> value == null ? List.of() : List.of(((String) value).split("(?!^)")),
        "twice", value -> Arrays.asList(value, value));

    private static final Map<String, Two> PREDICATES = Map.of(
        "is_even", (key, value) -> size(value) % 2 == 0,
        "is_long", (key, value) -> size(value) > 1,
        "key_is_a", (key, value) -> "a".equals(key),
        "has_key", (key, value) -> key != null,
        "is_null", (key, value) -> value == null);

    private static final Map<String, Two> FOREIGN_KEYS = Map.of(
        "letter", (key, value) -> isX(value) ? null : "abc".substring((int) (Math.abs(size(value)) % 3)).substring(0, 1),
        "key", (key, value) -> isX(value) ? null : key);

    private static final Map<String, Two> REDUCERS = Map.of(
        "concat", (old, added) -> old + "," + added,
        "min", RunDsl::lesser,
        "sum", (old, added) -> size(old) + size(added),
        "difference", (old, gone) -> size(old) - size(gone),
        "less", (old, gone) -> old + "-" + gone,
        "null_if_x", (old, added) -> isX(added) ? null : added);

    private static final Map<String, Three> AGGREGATORS = Map.of(
        "concat", (key, value, aggregate) -> aggregate + "+" + value,
        "sum", (key, value, aggregate) -> size(aggregate) + size(value),
        "difference", (key, value, aggregate) -> size(aggregate) - size(value),
        "less", (key, value, aggregate) -> aggregate + "-" + value,
        "key_and_min", (key, value, aggregate) -> lesser(key + "" + value, aggregate),
        "null_if_x", (key, value, aggregate) -> isX(value) ? null : aggregate + "/" + value);

    private static final Map<String, Two> JOINERS = Map.of(
        "pair", (left, right) -> left + "&" + right,
        "right", (left, right) -> right,
        "null_if_x", (left, right) -> isX(left) ? null : left + "&" + right);

    private static final Map<String, Three> KEYED_JOINERS = Map.of(
        "key_and_pair", (key, left, right) -> key + ":" + left + "&" + right);

    private static final Map<String, Two> KEYS = Map.of(
        "key", (key, value) -> key,
        "value", (key, value) -> value,
        "null_if_x", (key, value) -> isX(value) ? null : key);
}
