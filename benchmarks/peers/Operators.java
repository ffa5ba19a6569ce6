import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * What programs of benchmarks/dsl_programs.py do, in Kafka's DSL: one thread, stores with headers, no cache.
 * java -cp "KAFKA_STREAMS_JARS/*:CLASSES" Operators BOOTSTRAP APPLICATION_ID STATE_DIR INPUT OUTPUT GUARANTEE OPERATOR
 *
 * It runs until it is killed; if its thread fails it ends with status 1.
 */
public class Operators {
    static final Duration SIZE = Duration.ofSeconds(60);
    static final Duration GRACE = Duration.ofSeconds(60);

    static Topology topology(String operator, String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<byte[], byte[]> records =
                builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())).groupByKey();
        TimeWindows windows = TimeWindows.ofSizeAndGrace(SIZE, GRACE);
        switch (operator) {
            case "count" -> records.count().toStream().to(output);
            case "tumbling" -> records.windowedBy(windows).count().toStream().to(output);
            default -> throw new IllegalArgumentException(operator);
        }
        return builder.build();
    }

    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put("dsl.store.format", "HEADERS");
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(args[6], args[3], args[4]), settings);
        streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.start();
        new CountDownLatch(1).await();
    }
}
