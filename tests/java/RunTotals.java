import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * A Kafka Streams application that adds up amounts, exactly once, until it has processed so many records; then it stops:
 * java -cp "KAFKA_STREAMS_JARS/*" RunTotals.java BOOTSTRAP APPLICATION_ID STATE_DIR TOPIC RECORDS PROTOCOL
 *
 * Keys are strings and values longs. A key's total and the sum of each of its windows of ten seconds have the headers and
 * the timestamp of the last record, the sum of the same ten seconds as a session has the headers, and the number of its
 * records the timestamp. The amounts are versions of the key. An amount of 0 deletes total, session and version.
 *
 * PROTOCOL is what the members of the group coordinate by, classic or streams.
 */
public class RunTotals {
    static final Duration WINDOW = Duration.ofSeconds(10);
    static final Duration RETENTION = Duration.ofHours(1);

    static class Totals implements Processor<String, Long, Void, Void> {
        final CountDownLatch left;
        KeyValueStore<String, ValueTimestampHeaders<Long>> totals;
        WindowStore<String, ValueTimestampHeaders<Long>> windows;
        SessionStore<String, AggregationWithHeaders<Long>> sessions;
        TimestampedKeyValueStore<String, Long> counts;
        VersionedKeyValueStore<String, Long> versions;

        Totals(CountDownLatch left) {
            this.left = left;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            totals = context.getStateStore("totals");
            windows = context.getStateStore("windows");
            sessions = context.getStateStore("sessions");
            counts = context.getStateStore("counts");
            versions = context.getStateStore("versions");
        }

        @Override
        public void process(Record<String, Long> record) {
            ValueTimestampHeaders<Long> total = totals.get(record.key());
            boolean deletes = record.value() == 0;
            totals.put(record.key(), deletes ? null : sum(total, record));
            long start = record.timestamp() - record.timestamp() % WINDOW.toMillis();
            windows.put(record.key(), sum(windows.fetch(record.key(), start), record), start);
            Windowed<String> session = new Windowed<>(record.key(), new SessionWindow(start, start + WINDOW.toMillis() - 1));
            AggregationWithHeaders<Long> held = sessions.fetchSession(
                record.key(), session.window().start(), session.window().end());
            sessions.put(session, deletes ? null : AggregationWithHeaders.make(
                (held == null ? 0 : held.aggregation()) + record.value(), record.headers()));
            ValueAndTimestamp<Long> count = counts.get(record.key());
            counts.put(record.key(), ValueAndTimestamp.make(
                (count == null ? 0 : count.value()) + 1, record.timestamp()));
            versions.put(record.key(), deletes ? null : record.value(), record.timestamp());
            left.countDown();
        }

        static ValueTimestampHeaders<Long> sum(ValueTimestampHeaders<Long> before, Record<String, Long> record) {
            long sum = (before == null ? 0 : before.value()) + record.value();
            return ValueTimestampHeaders.make(sum, record.timestamp(), record.headers());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[1],
            StreamsConfig.STATE_DIR_CONFIG, Path.of(arguments[2]).toString(),
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.REPLICATION_FACTOR_CONFIG, 1,
            StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[5]));
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[4]));
        Topology topology = new Topology()
            .addSource("in", Serdes.String().deserializer(), Serdes.Long().deserializer(), arguments[3])
            .addProcessor("total", () -> new Totals(left), "in")
            .addStateStore(Stores.timestampedKeyValueStoreWithHeadersBuilder(
                Stores.persistentTimestampedKeyValueStoreWithHeaders("totals"), Serdes.String(), Serdes.Long()), "total")
            .addStateStore(Stores.timestampedWindowStoreWithHeadersBuilder(
                Stores.persistentTimestampedWindowStoreWithHeaders("windows", RETENTION, WINDOW, false),
                Serdes.String(), Serdes.Long()), "total")
            .addStateStore(Stores.sessionStoreWithHeadersBuilder(
                Stores.persistentSessionStoreWithHeaders("sessions", RETENTION), Serdes.String(), Serdes.Long()), "total")
            .addStateStore(Stores.timestampedKeyValueStoreBuilder(
                Stores.persistentTimestampedKeyValueStore("counts"), Serdes.String(), Serdes.Long()), "total")
            .addStateStore(Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore("versions", RETENTION), Serdes.String(), Serdes.Long()), "total");
        Throwable[] failure = new Throwable[1];
        KafkaStreams streams = new KafkaStreams(topology, config);
        try {
            streams.setUncaughtExceptionHandler(thrown -> {
                failure[0] = thrown;
                while (left.getCount() > 0) {
                    left.countDown();
                }
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            left.await();
        } finally {
            // Otherwise the group holds on to the application until its session has timed out.
            streams.close(CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP));
        }
        if (failure[0] != null) {
            throw new IllegalStateException(failure[0]);
        }
    }
}
