import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.state.internals.LeftOrRightValue;
import org.apache.kafka.streams.state.internals.TimestampedKeyAndJoinSide;
import org.apache.kafka.streams.test.TestRecord;

/**
 * A TopologyTestDriver on its way through the steps of a scenario; what comes of it is in the shape that JSON has.
 *
 * <p>A step is one of {@code ["pipe", TOPIC, KEY, VALUE, TIMESTAMP, HEADERS]}, {@code ["advance", MS]},
 * {@code ["read", TOPIC]}, {@code ["read_one", TOPIC]}, {@code ["put", STORE, KEY, VALUE]},
 * {@code ["input", TOPIC, START_MS, AUTO_ADVANCE_MS]}, {@code ["advance_time", TOPIC, MS]}. Bytes are hex.
 */
@SuppressWarnings("unchecked")
final class DriverRun {

    private final TopologyTestDriver driver;
    private final Set<String> keys = new TreeSet<>();
    private final Set<Long> times = new TreeSet<>();
    private final Map<String, TestInputTopic<byte[], byte[]>> inputs = new HashMap<>();

    DriverRun(TopologyTestDriver driver) {
        this.driver = driver;
    }

    /** The entries of each store, by name; null where they can't be read, as those of windows without a size. */
    Map<String, Object> stores() {
        var stores = new TreeMap<String, Object>();
        driver.getAllStateStores().forEach((name, store) -> {
            try {
                stores.put(name, dump(store));
            } catch (IllegalArgumentException unreadable) {
                stores.put(name, null);
            }
        });
        return stores;
    }

    /** The records that no step has read yet, by topic; a topic without is there too. */
    Map<String, List<Object>> topics() {
        var topics = new TreeMap<String, List<Object>>();
        for (String topic : driver.producedTopicNames()) {
            topics.put(topic, described(output(topic).readRecordsToList()));
        }
        return topics;
    }

    /** What a step gives: null, records, or the messages of an error. */
    Object outcome(JsonNode step) {
        try {
            return perform(step);
        } catch (Exception failure) {
            return Map.of("error", messages(failure));
        }
    }

    private Object perform(JsonNode step) {
        String argument = step.get(1).asText();
        switch (step.get(0).asText()) {
            case "pipe" -> pipe(argument, step);
            case "advance" -> driver.advanceWallClockTime(Duration.ofMillis(step.get(1).asLong()));
            case "read" -> {
                return described(output(argument).readRecordsToList());
            }
            case "read_one" -> {
                return described(List.of(output(argument).readRecord()));
            }
            case "put" -> driver.<String, String>getKeyValueStore(argument)
                .put(string(bytes(step.get(2))), string(bytes(step.get(3))));
            case "input" -> inputs.put(argument, input(argument, step.get(2).asLong(), step.get(3).asLong()));
            case "advance_time" -> inputs.get(argument).advanceTime(Duration.ofMillis(step.get(2).asLong()));
            default -> throw new IllegalArgumentException("no such step: " + step);
        }
        return null;
    }

    private void pipe(String topic, JsonNode step) {
        byte[] key = bytes(step.get(2));
        Long timestamp = step.get(4).isNull() ? null : step.get(4).asLong();
        var headers = new RecordHeaders();
        for (JsonNode header : step.get(5)) {
            headers.add(header.get(0).asText(), bytes(header.get(1)));
        }
        if (key != null) {
            keys.add(string(key));
        }
        if (timestamp != null) {
            times.add(timestamp);
        }
        inputs.computeIfAbsent(topic, name -> input(name, 0, 0))
            .pipeInput(new TestRecord<>(key, bytes(step.get(3)), headers, timestamp));
    }

    private TestInputTopic<byte[], byte[]> input(String topic, long startMs, long autoAdvanceMs) {
        var bytes = new ByteArraySerializer();
        return driver.createInputTopic(
            topic, bytes, bytes, Instant.ofEpochMilli(startMs), Duration.ofMillis(autoAdvanceMs));
    }

    private TestOutputTopic<byte[], byte[]> output(String topic) {
        return driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<Object> described(List<TestRecord<byte[], byte[]>> records) {
        var list = new ArrayList<Object>();
        for (TestRecord<byte[], byte[]> record : records) {
            list.add(Arrays.asList(hex(record.key()), hex(record.value()), record.timestamp(), list(record.headers())));
        }
        return list;
    }

    /**
     * The entries of a store in its order; a versioned store is asked for each key that was piped, at each time. Null
     * for a buffer, which has no public interface.
     */
    private Object dump(StateStore store) {
        var entries = new ArrayList<Object>();
        if (store instanceof VersionedKeyValueStore<?, ?>) {
            var versioned = (VersionedKeyValueStore<String, Object>) store;
            for (String key : keys) {
                entries.add(Arrays.asList(key, null, parts(versioned.get(key))));
                for (long time : times) {
                    entries.add(Arrays.asList(key, time, parts(versioned.get(key, time))));
                }
            }
        } else if (store instanceof WindowStore<?, ?>) {
            entries(((WindowStore<String, Object>) store).all(), entries);
        } else if (store instanceof SessionStore<?, ?>) {
            entries(((SessionStore<String, Object>) store).fetch(null, null), entries);
        } else if (store instanceof KeyValueStore<?, ?>) {
            entries(((KeyValueStore<String, Object>) store).all(), entries);
        } else {
            return null;
        }
        return entries;
    }

    private static void entries(KeyValueIterator<?, Object> iterator, List<Object> entries) {
        try (iterator) {
            iterator.forEachRemaining(pair -> {
                var entry = new ArrayList<Object>();
                if (pair.key instanceof Windowed<?> windowed) {
                    entry.addAll(List.of(windowed.key(), windowed.window().start(), windowed.window().end()));
                } else if (pair.key instanceof TimestampedKeyAndJoinSide<?> waiting) {
                    String side = waiting.isLeftSide() ? "left" : "right";
                    entry.addAll(List.of(waiting.key(), waiting.timestamp(), side));
                } else {
                    entry.add(pair.key);
                }
                entry.addAll(parts(pair.value));
                entries.add(entry);
            });
        }
    }

    private static List<Object> parts(Object value) {
        if (value instanceof ValueAndTimestamp<?> stored) {
            return Arrays.asList(stored.value(), stored.timestamp());
        } else if (value instanceof ValueTimestampHeaders<?> stored) {
            return Arrays.asList(stored.value(), stored.timestamp(), list(stored.headers()));
        } else if (value instanceof AggregationWithHeaders<?> stored) {
            return Arrays.asList(stored.aggregation(), list(stored.headers()));
        } else if (value instanceof VersionedRecord<?> stored) {
            return Arrays.asList(stored.value(), stored.timestamp());
        } else if (value instanceof LeftOrRightValue<?, ?> waiting) {
            return Collections.singletonList(
                waiting.leftValue() == null ? waiting.rightValue() : waiting.leftValue());
        }
        return Collections.singletonList(value);
    }

    private static List<Object> list(Headers headers) {
        return StreamSupport.stream(headers.spliterator(), false)
            .map(header -> (Object) Arrays.asList(header.key(), hex(header.value())))
            .toList();
    }

    /** The failure and its causes. */
    static List<String> messages(Throwable failure) {
        var messages = new ArrayList<String>();
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            messages.add(cause.getClass().getName() + ": " + cause.getMessage());
        }
        return messages;
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    private static String string(byte[] utf8) {
        return utf8 == null ? null : new String(utf8, StandardCharsets.UTF_8);
    }
}
