import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * What programs of benchmarks/dsl_programs.py do, in Kafka's DSL: one thread, stores with headers, no cache.
 * java -cp "KAFKA_STREAMS_JARS/*:CLASSES" Operators BOOTSTRAP APPLICATION_ID STATE_DIR INPUT OUTPUT GUARANTEE OPERATOR PROGRESS
 *
 * It runs until it is killed, and keeps in the file PROGRESS how many records are done; if its thread fails it ends with
 * status 1.
 */
public class Operators {
    static final Duration SIZE = Duration.ofSeconds(60);
    static final Duration ADVANCE = Duration.ofSeconds(20);
    static final Duration GAP = Duration.ofSeconds(30);
    static final Duration APART = Duration.ofSeconds(30);
    static final Duration GRACE = Duration.ofSeconds(60);
    static final long TELL_EVERY_MS = 100;
    static final long IDLE_MS = 500;
    /** Those with repartition topics. */
    static final Set<String> STAGED = Set.of("word_count", "foreign_key_joined");

    static Topology topology(String operator, String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], byte[]> stream =
                builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()));
        KGroupedStream<byte[], byte[]> records = stream.groupByKey();
        SessionWindows gaps = SessionWindows.ofInactivityGapAndGrace(GAP, GRACE);
        JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(APART, GRACE);
        TimeWindows windows = TimeWindows.ofSizeAndGrace(SIZE, GRACE);
        switch (operator) {
            case "count" -> records.count().toStream().to(output);
            case "tumbling" -> records.windowedBy(windows).count().toStream().to(output);
            case "hopping" -> records.windowedBy(windows.advanceBy(ADVANCE)).count().toStream().to(output);
            case "final_windows" ->
                    records.windowedBy(windows).emitStrategy(EmitStrategy.onWindowClose()).count().toStream().to(output);
            case "suppressed_windows" ->
                    records.windowedBy(windows)
                            .count()
                            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                            .toStream()
                            .to(output);
            case "sessions" -> records.windowedBy(gaps).count().toStream().to(output);
            case "final_sessions" ->
                    records.windowedBy(gaps).emitStrategy(EmitStrategy.onWindowClose()).count().toStream().to(output);
            case "joined" -> stream.join(stream, Operators::left, near).to(output);
            case "left_joined" -> stream.leftJoin(stream, Operators::left, near).to(output);
            case "word_count" ->
                    stream.flatMap(Operators::words).groupByKey().count().toStream().to(output);
            case "foreign_key_joined" ->
                    stream.toTable()
                            .join(
                                    stream.filter((key, value) -> Arrays.equals(key, foreignKey(key, value)))
                                            .repartition()
                                            .toTable(),
                                    Operators::foreignKey,
                                    Operators::left)
                            .toStream()
                            .to(output);
            default -> throw new IllegalArgumentException(operator);
        }
        return builder.build();
    }

    public static void main(String[] args) throws InterruptedException, IOException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put("dsl.store.format", "HEADERS");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(args[6], args[3], args[4]), settings);
        streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.start();
        long before = 0;
        long busyMs = System.currentTimeMillis();
        while (true) {
            // Records of repartition topics are processed, too: until nothing has moved for a while, the last one is not done.
            long processed = total(streams, "stream-thread-metrics", "process-total", null);
            long consumed = total(streams, "consumer-fetch-manager-metrics", "records-consumed-total", args[3]);
            busyMs = processed == before ? busyMs : System.currentTimeMillis();
            before = processed;
            boolean isIdle = System.currentTimeMillis() - busyMs > IDLE_MS;
            tell(STAGED.contains(args[6]) ? Math.max(0, isIdle ? consumed : consumed - 1) : processed, Path.of(args[7]));
            Thread.sleep(TELL_EVERY_MS);
        }
    }

    /** The sum of a metric, of one topic if that is not null. */
    static long total(KafkaStreams streams, String group, String name, String topic) {
        return streams.metrics().values().stream()
                .filter(each -> each.metricName().group().equals(group))
                .filter(each -> each.metricName().name().equals(name))
                .filter(each -> topic == null || topic.equals(each.metricName().tags().get("topic")))
                .filter(each -> !each.metricName().tags().containsKey("partition"))
                .mapToLong(each -> ((Number) each.metricValue()).longValue())
                .sum();
    }

    static void tell(long records, Path progress) throws IOException {
        Path written = progress.resolveSibling(progress.getFileName() + ".new");
        Files.writeString(written, Long.toString(records));
        Files.move(written, progress, StandardCopyOption.ATOMIC_MOVE);
    }

    static byte[] left(byte[] left, byte[] right) {
        return left;
    }

    /** Five words of a record, each the key of a record without a value of its own. */
    static List<KeyValue<byte[], byte[]>> words(byte[] key, byte[] value) {
        return Stream.of(end(key, 5), end(key, 4), end(value, 5), end(value, 4), end(value, 3))
                .map(word -> KeyValue.pair(word, word))
                .toList();
    }

    /** The key whose last digit is 0, of ten keys. */
    static byte[] foreignKey(byte[] key, byte[] value) {
        byte[] made = key.clone();
        made[made.length - 1] = '0';
        return made;
    }

    static byte[] end(byte[] bytes, int count) {
        return Arrays.copyOfRange(bytes, bytes.length - count, bytes.length);
    }
}
