import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;

/** What CountAndKeep of benchmarks/workload.py does, in Kafka Streams: the store with headers, no cache. */
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
}
