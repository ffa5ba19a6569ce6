import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * The program of docs/kafka-changelogs.md, purchases, in Kafka Streams, until a file appears; then it stops:
 * java -cp "KAFKA_STREAMS_JARS/*" RunPurchases.java BOOTSTRAP APPLICATION_ID STATE_DIR FILE
 */
public class RunPurchases {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[1],
            StreamsConfig.STATE_DIR_CONFIG, arguments[2],
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100,
            StreamsConfig.REPLICATION_FACTOR_CONFIG, 1,
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class));
        Throwable[] failure = new Throwable[1];
        KafkaStreams streams = new KafkaStreams(purchases(), config);
        try {
            streams.setUncaughtExceptionHandler(thrown -> {
                failure[0] = thrown;
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            while (!Files.exists(Path.of(arguments[3])) && !streams.state().hasStartedOrFinishedShuttingDown()) {
                Thread.sleep(20);
            }
        } finally {
            // Otherwise the group holds on to the application until its session has timed out.
            streams.close(CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP));
        }
        if (failure[0] != null) {
            throw new IllegalStateException(failure[0]);
        }
    }

    private static Topology purchases() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream("orders");
        KTable<String, String> customers = builder.table("customers", Materialized.as("customers"));
        KGroupedStream<String, String> byProduct = orders.filter((key, order) -> order != null)
            .groupBy((key, order) -> order.split(":")[1], Grouped.as("by-product"));
        byProduct.count(Materialized.as("counts"))
            .suppress(Suppressed.untilTimeLimit(Duration.ofMinutes(1), BufferConfig.unbounded()).withName("slow"))
            .toStream()
            .to("slow-counts");
        byProduct.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofHours(1)))
            .count(Materialized.as("minutes"));
        orders.toTable(Materialized.as("orders")).join(
            customers,
            order -> order.split(":")[0],
            (order, customer) -> order + ":" + customer,
            TableJoined.as("joined"),
            Materialized.as("joined"));
        return builder.build();
    }
}
