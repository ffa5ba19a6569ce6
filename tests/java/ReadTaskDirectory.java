import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.state.internals.WrappedStateStore;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/**
 * Says what Kafka Streams reads in a task's state directory, as one line of JSON. The directory itself is not changed.
 *
 * <p>{@code java -cp JARS ReadTaskDirectory.java TASK_DIR KIND STORE [name=value ...]} exits with 2 if the store does
 * not open or can't be read; the JSON has an "error" then. {@code --batch} takes any number of such requests from
 * standard input, a line each with tabs between the words, and exits with 0 as long as it understands them.
 */
@SuppressWarnings("unchecked")
public final class ReadTaskDirectory {

    /** What a request may set, and what the golden directories were written with. */
    private static final Map<String, String> DEFAULTS = Map.of(
        "applicationId", "golden",
        "retentionMs", "120000",
        "windowSizeMs", "10000",
        "segmentIntervalMs", "60000",
        "historyRetentionMs", "300000");

    private static final ObjectMapper JSON = new ObjectMapper();

    private final Path taskDirectory;
    private final String kind;
    private final String store;
    private final Map<String, String> options = new HashMap<>(DEFAULTS);

    /** Set as soon as the copy is there. */
    private Path stateDirectory;

    private ReadTaskDirectory(List<String> request) {
        if (request.size() < 3) {
            throw new IllegalArgumentException("expected TASK_DIR KIND STORE [name=value ...], got " + request);
        }
        taskDirectory = Path.of(request.get(0));
        if (!Files.isDirectory(taskDirectory)) {
            throw new IllegalArgumentException("no such directory: " + taskDirectory);
        }
        kind = request.get(1);
        store = request.get(2);
        for (String option : request.subList(3, request.size())) {
            String[] parts = option.split("=", 2);
            if (parts.length != 2 || options.replace(parts[0], parts[1]) == null) {
                throw new IllegalArgumentException("not name=value with one of " + DEFAULTS.keySet() + ": " + option);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        // Whatever a library prints goes to stderr: stdout is for JSON alone, in UTF-8 whatever the locale.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (List.of(args).equals(List.of("--batch"))) {
            var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                answers.println(JSON.writeValueAsString(new ReadTaskDirectory(List.of(line.split("\t"))).read()));
            }
        } else {
            Map<String, Object> found = new ReadTaskDirectory(List.of(args)).read();
            answers.println(JSON.writeValueAsString(found));
            System.exit(found.containsKey("error") ? 2 : 0);
        }
    }

    private Map<String, Object> read() throws IOException {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("kind", kind);
        found.put("store", store);
        StoreBuilder<?> builder = builder();
        stateDirectory = Files.createTempDirectory("read-task-directory");
        try {
            copyTask();
            // Before the store holds the lock of the database.
            VersionedRows rows = kind.equals("versioned") ? VersionedRows.in(task().resolve("rocksdb/" + store)) : null;
            try (TopologyTestDriver driver = new TopologyTestDriver(topology(builder), config())) {
                readStore(driver.getAllStateStores().get(store), rows, found);
            }
        } catch (Exception failure) {
            found.put("error", messages(failure));
        } finally {
            deleteCopy();
        }
        return found;
    }

    private void readStore(StateStore opened, VersionedRows rows, Map<String, Object> found) throws Exception {
        String changelog = options.get("applicationId") + "-" + store + "-changelog";
        found.put("committedOffset", opened.committedOffset(new TopicPartition(changelog, 0)));
        Map<String, Object> position = new TreeMap<>();
        for (String topic : opened.getPosition().getTopics()) {
            position.put(topic, opened.getPosition().getPartitionPositions(topic));
        }
        found.put("position", position);

        var entries = new ArrayList<Map<String, Object>>();
        var differing = new ArrayList<Map<String, Object>>();
        found.put("entries", entries);
        found.put("pointReadsThatDiffer", differing);
        if (rows != null) {
            readVersions((VersionedKeyValueStore<byte[], byte[]>) opened, rows, entries);
        } else if (opened instanceof WindowStore) {
            var windows = (WindowStore<byte[], Object>) opened;
            List<Map<String, Object>> scanned = scan(windows.all(), entries);
            // A point read of a store with duplicates finds one of them only.
            if (!kind.endsWith("-dup")) {
                compare(scanned, (key, start, end) -> windows.fetch(key, start), differing);
            }
        } else if (opened instanceof SessionStore) {
            var sessions = (SessionStore<byte[], Object>) opened;
            compare(scan(sessions.fetch((byte[]) null, null), entries), sessions::fetchSession, differing);
        } else {
            var map = (KeyValueStore<byte[], Object>) opened;
            compare(scan(map.all(), entries), (key, start, end) -> map.get(key), differing);
        }
    }

    /** Gets one entry; start and end are 0 where there is no window. */
    private interface PointRead {
        Object value(byte[] key, long start, long end);
    }

    private static List<Map<String, Object>> scan(
            KeyValueIterator<?, Object> iterator, List<Map<String, Object>> entries) {
        try (iterator) {
            iterator.forEachRemaining(pair -> {
                Map<String, Object> entry = new LinkedHashMap<>();
                if (pair.key instanceof Windowed<?> windowed) {
                    entry.put("key", hex(windowed.key()));
                    entry.put("start", windowed.window().start());
                    entry.put("end", windowed.window().end());
                } else {
                    entry.put("key", hex(pair.key));
                }
                entry.putAll(described(pair.value));
                entries.add(entry);
            });
        }
        return entries;
    }

    /** Reads each entry again by its key: in a half-upgraded store that takes another path than the scan. */
    private static void compare(
            List<Map<String, Object>> scanned, PointRead read, List<Map<String, Object>> differing) {
        for (Map<String, Object> entry : scanned) {
            byte[] key = HexFormat.of().parseHex((String) entry.get("key"));
            long start = (Long) entry.getOrDefault("start", 0L);
            long end = (Long) entry.getOrDefault("end", 0L);
            Map<String, Object> point = described(read.value(key, start, end));
            Map<String, Object> expected = new LinkedHashMap<>(entry);
            expected.keySet().removeAll(List.of("key", "start", "end"));
            if (!expected.equals(point)) {
                var difference = new LinkedHashMap<String, Object>();
                difference.put("scanned", entry);
                difference.put("point", point);
                differing.add(difference);
            }
        }
    }

    /** The value with the parts that its class has, or null for null. */
    private static Map<String, Object> described(Object value) {
        if (value == null) {
            return null;
        }
        Map<String, Object> parts = new LinkedHashMap<>();
        if (value instanceof ValueAndTimestamp<?> stored) {
            parts.put("value", hex(stored.value()));
            parts.put("timestamp", stored.timestamp());
        } else if (value instanceof ValueTimestampHeaders<?> stored) {
            parts.put("value", hex(stored.value()));
            parts.put("timestamp", stored.timestamp());
            parts.put("headers", list(stored.headers()));
        } else if (value instanceof AggregationWithHeaders<?> stored) {
            parts.put("value", hex(stored.aggregation()));
            parts.put("headers", list(stored.headers()));
        } else if (value instanceof VersionedRecord<?> stored) {
            parts.put("value", hex(stored.value()));
            parts.put("timestamp", stored.timestamp());
            parts.put("validTo", stored.validTo().orElse(null));
        } else {
            parts.put("value", hex(value));
        }
        return parts;
    }

    private static List<List<String>> list(Headers headers) {
        return StreamSupport.stream(headers.spliterator(), false)
            .map(header -> Arrays.asList(header.key(), hex(header.value())))
            .toList();
    }

    private static String hex(Object bytes) {
        return bytes == null ? null : HexFormat.of().formatHex((byte[]) bytes);
    }

    /** The logical segments and the keys of a versioned store's database: its rows are segment id, then key. */
    private record VersionedRows(SortedSet<Long> segmentIds, SortedSet<byte[]> keys) {

        static VersionedRows in(Path database) throws Exception {
            var rows = new VersionedRows(new TreeSet<>(), new TreeSet<>(Arrays::compareUnsigned));
            var handles = new ArrayList<ColumnFamilyHandle>();
            RocksDB.loadLibrary();
            try (Options options = new Options();
                    RocksDB db = RocksDB.openReadOnly(database.toString(), families(options, database), handles);
                    RocksIterator row = db.newIterator()) {
                for (row.seekToFirst(); row.isValid(); row.next()) {
                    ByteBuffer key = ByteBuffer.wrap(row.key());
                    long segmentId = key.getLong();
                    // Latest values have an id below 0, and a segment that is always there.
                    if (segmentId >= 0) {
                        rows.segmentIds.add(segmentId);
                    }
                    rows.keys.add(Arrays.copyOfRange(row.key(), key.position(), key.limit()));
                }
                handles.forEach(ColumnFamilyHandle::close);
            }
            return rows;
        }

        private static List<ColumnFamilyDescriptor> families(Options options, Path database) throws Exception {
            return RocksDB.listColumnFamilies(options, database.toString()).stream()
                .map(ColumnFamilyDescriptor::new)
                .toList();
        }
    }

    private static void readVersions(
            VersionedKeyValueStore<byte[], byte[]> opened, VersionedRows rows, List<Map<String, Object>> entries)
            throws Exception {
        createSegments(opened, rows.segmentIds());
        var anyPosition = PositionBound.unbounded();
        for (byte[] key : rows.keys()) {
            var query = MultiVersionedKeyQuery.<byte[], byte[]>withKey(key).withAscendingTimestamps();
            var versions = new ArrayList<Map<String, Object>>();
            Map<String, Object> latest = described(opened.get(key));
            try (var iterator = opened.query(query, anyPosition, new QueryConfig(false)).getResult()) {
                iterator.forEachRemaining(version -> versions.add(described(version)));
            }
            var entry = new LinkedHashMap<String, Object>();
            entry.put("key", hex(key));
            entry.put("latest", latest);
            entry.put("versions", versions);
            entries.add(entry);
        }
    }

    /** Makes old versions readable: a store that was just opened knows its latest values only. */
    private static void createSegments(StateStore opened, SortedSet<Long> segmentIds) throws Exception {
        Object bottom = opened;
        while (!bottom.getClass().getSimpleName().equals("RocksDBVersionedStore")) {
            bottom = bottom instanceof WrappedStateStore<?, ?, ?> layer ? layer.wrapped() : field(bottom, "inner");
        }
        Object segments = field(bottom, "segmentStores");
        Method create = segments.getClass().getMethod("getOrCreateSegment", long.class, StateStoreContext.class);
        create.setAccessible(true);
        for (long segmentId : segmentIds) {
            create.invoke(segments, segmentId, null);
        }
    }

    private static Object field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private StoreBuilder<?> builder() {
        Serde<byte[]> bytes = Serdes.ByteArray();
        Duration retention = duration("retentionMs");
        Duration window = duration("windowSizeMs");
        boolean duplicates = kind.endsWith("-dup");
        StoreBuilder<?> builder = switch (kind) {
            case "kv" -> Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), bytes, bytes);
            case "ts-kv" -> Stores.timestampedKeyValueStoreBuilder(
                Stores.persistentTimestampedKeyValueStore(store), bytes, bytes);
            case "headers-kv" -> Stores.timestampedKeyValueStoreWithHeadersBuilder(
                Stores.persistentTimestampedKeyValueStoreWithHeaders(store), bytes, bytes);
            case "window", "window-dup" -> Stores.windowStoreBuilder(
                Stores.persistentWindowStore(store, retention, window, duplicates), bytes, bytes);
            case "ts-window" -> Stores.timestampedWindowStoreBuilder(
                Stores.persistentTimestampedWindowStore(store, retention, window, duplicates), bytes, bytes);
            case "headers-window", "headers-window-dup" -> Stores.timestampedWindowStoreWithHeadersBuilder(
                Stores.persistentTimestampedWindowStoreWithHeaders(store, retention, window, duplicates), bytes, bytes);
            case "session" -> Stores.sessionStoreBuilder(
                Stores.persistentSessionStore(store, retention), bytes, bytes);
            case "headers-session" -> Stores.sessionStoreWithHeadersBuilder(
                Stores.persistentSessionStoreWithHeaders(store, retention), bytes, bytes);
            case "versioned" -> Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore(
                    store, duration("historyRetentionMs"), duration("segmentIntervalMs")), bytes, bytes);
            default -> throw new IllegalArgumentException("unknown kind of store: " + kind);
        };
        // Without a changelog its offset, which is read too, would be unknown.
        return builder.withLoggingEnabled(Map.of()).withCachingDisabled();
    }

    /** A class of its own, because a topology wants another object from each call of its supplier. */
    private static final class Idle implements Processor<byte[], byte[], Void, Void> {
        @Override
        public void process(Record<byte[], byte[]> record) { }
    }

    private static Topology topology(StoreBuilder<?> builder) {
        var bytes = new ByteArrayDeserializer();
        return new Topology()
            .addSource("source", bytes, bytes, "in")
            .addProcessor("processor", Idle::new, "source")
            .addStateStore(builder, "processor");
    }

    private Properties config() {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("applicationId"));
        config.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory.toString());
        return config;
    }

    private Duration duration(String name) {
        return Duration.ofMillis(Long.parseLong(options.get(name)));
    }

    /** The copy, where the test driver looks for its only task. */
    private Path task() {
        return stateDirectory.resolve(options.get("applicationId")).resolve("0_0");
    }

    private void copyTask() throws IOException {
        Files.createDirectories(task().getParent());
        try (var paths = Files.walk(taskDirectory)) {
            for (Path path : (Iterable<Path>) paths::iterator) {
                Files.copy(path, task().resolve(taskDirectory.relativize(path).toString()));
            }
        }
    }

    private void deleteCopy() throws IOException {
        try (var paths = Files.walk(stateDirectory)) {
            for (Path path : (Iterable<Path>) paths.sorted(Comparator.reverseOrder())::iterator) {
                Files.delete(path);
            }
        }
    }

    /** The failure and its causes, without the name of the copy, which is another one each time. */
    private List<String> messages(Throwable failure) {
        var messages = new ArrayList<String>();
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            String message = String.valueOf(cause.getMessage()).replace(stateDirectory.toString(), "");
            messages.add(cause.getClass().getName() + ": " + message);
        }
        return messages;
    }
}
