import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;

/**
 * What CountAndKeep of benchmarks/workload.py does, in Kafka Streams: one thread, the store with headers, no cache.
 * java -cp "KAFKA_STREAMS_JARS/*:CLASSES" CountAndKeep BOOTSTRAP APPLICATION_ID STATE_DIR INPUT OUTPUT GUARANTEE
 *
 * It runs until it is killed; if its thread fails it ends with status 1.
 */
public class CountAndKeep implements Processor<byte[], byte[], byte[], byte[]> {
    static final String STORE = "counts";

    private ProcessorContext<byte[], byte[]> context;
    private TimestampedKeyValueStoreWithHeaders<byte[], byte[]> store;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        ValueTimestampHeaders<byte[]> seen = store.get(record.key());
        long count = seen == null ? 1 : ByteBuffer.wrap(seen.value()).getLong() + 1;
        byte[] value = ByteBuffer.allocate(Long.BYTES + record.value().length).putLong(count).put(record.value()).array();
        store.put(record.key(), ValueTimestampHeaders.make(value, record.timestamp(), record.headers()));
        context.forward(record.withValue(value));
    }

    static Topology topology(String input, String output) {
        return new Topology()
                .addSource("in", new ByteArrayDeserializer(), new ByteArrayDeserializer(), input)
                .addProcessor("count", CountAndKeep::new, "in")
                .addStateStore(
                        Stores.timestampedKeyValueStoreWithHeadersBuilder(
                                        Stores.persistentTimestampedKeyValueStoreWithHeaders(STORE),
                                        Serdes.ByteArray(),
                                        Serdes.ByteArray())
                                .withCachingDisabled()
                                .withLoggingEnabled(Map.of()),
                        "count")
                .addSink("out", output, new ByteArraySerializer(), new ByteArraySerializer(), "count");
    }

    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(args[3], args[4]), settings);
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
