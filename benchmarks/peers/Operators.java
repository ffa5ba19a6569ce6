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
 * CountAndKeep, and what programs of benchmarks/dsl_programs.py do, in Kafka's DSL: stores with headers, no cache.
 * java -cp "KAFKA_STREAMS_JARS/*:CLASSES" Operators BOOTSTRAP INPUTS OUTPUT SCRATCH RECORDS_PER_BATCH OPERATOR GUARANTEE THREADS
 *
 * It runs until it is killed, and keeps in the file "progress" of SCRATCH how many records an operator of the DSL has done; if a
 * thread fails it ends with status 1.
 */
public class Operators {
    static final Duration SIZE = Duration.ofSeconds(60);
    static final Duration ADVANCE = Duration.ofSeconds(20);
    static final Duration GAP = Duration.ofSeconds(30);
    static final Duration APART = Duration.ofSeconds(30);
    static final Duration GRACE = Duration.ofSeconds(60);
    static final String COUNT_AND_KEEP = "count_and_keep";
    static final long TELL_EVERY_MS = 100;
    static final long IDLE_MS = 500;
    /** Those with repartition topics. */
    static final Set<String> STAGED = Set.of("word_count", "foreign_key_joined");

    static Topology topology(String operator, String[] inputs, String output) {
        if (operator.equals(COUNT_AND_KEEP)) {
            return CountAndKeep.topology(inputs[0], output);
        }
        StreamsBuilder builder = new StreamsBuilder();
        List<KStream<byte[], byte[]>> streams =
                Stream.of(inputs)
                        .map(input -> builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())))
                        .toList();
        KStream<byte[], byte[]> stream = streams.get(0);
        KStream<byte[], byte[]> other = streams.get(streams.size() - 1);
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
            case "joined" -> stream.join(other, Operators::left, near).to(output);
            case "left_joined" -> stream.leftJoin(other, Operators::left, near).to(output);
            case "tables_joined" ->
                    stream.toTable().join(other.toTable(), Operators::left).toStream().to(output);
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
        String[] inputs = args[1].split(",");
        String operator = args[5];
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(args[3], "state").toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[6]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[7]);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put("dsl.store.format", "HEADERS");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(operator, inputs, args[2]), settings);
        streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.start();
        if (operator.equals(COUNT_AND_KEEP)) {
            Thread.currentThread().join(); // for ever: what it has put out says how far it is
        }
        long before = 0;
        long busyMs = System.currentTimeMillis();
        while (true) {
            long done = total(streams, "stream-thread-metrics", "process-total", null);
            if (STAGED.contains(operator)) {
                // Records of repartition topics are processed, too: until nothing has moved for a while, the last is not done.
                busyMs = done == before ? busyMs : System.currentTimeMillis();
                before = done;
                boolean isIdle = System.currentTimeMillis() - busyMs > IDLE_MS;
                long consumed = total(streams, "consumer-fetch-manager-metrics", "records-consumed-total", inputs[0]);
                done = Math.max(0, isIdle ? consumed : consumed - 1);
            }
            tell(done, Path.of(args[3], "progress"));
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
