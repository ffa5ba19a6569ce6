import java.nio.ByteBuffer;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.LegacyRecord;
import org.apache.kafka.common.utils.ByteUtils;

/**
 * Prints messages of formats v0 and v1 as Kafka writes them, and varlongs and unsigned varints, as JSON:
 * java -cp "KAFKA_STREAMS_JARS/*" WriteMessages.java > tests/golden/messages-v0-v1.json
 */
public class WriteMessages {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        byte[][] parts = {null, {}, {'k'}, HEX.parseHex("00ff7f80"), "x".repeat(300).getBytes()};
        List<String> messages = new ArrayList<>();
        for (byte[] key : parts) {
            for (byte[] value : parts) {
                messages.add(message((byte) 0, -1L, key, value, TimestampType.NO_TIMESTAMP_TYPE));
            }
        }
        for (long timestamp : new long[] {-1L, 0L, 1700000000000L, Long.MAX_VALUE}) {
            for (TimestampType type : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                messages.add(message((byte) 1, timestamp, parts[2], parts[3], type));
                messages.add(message((byte) 1, timestamp, null, parts[4], type));
                messages.add(message((byte) 1, timestamp, parts[1], null, type));
            }
        }
        List<String> varlongs = new ArrayList<>();
        for (int bit = 0; bit < 64; bit++) {
            for (long value : new long[] {(1L << bit) - 1, 1L << bit, -(1L << bit), -(1L << bit) - 1}) {
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                ByteUtils.writeVarlong(value, new DataOutputStream(bytes));
                varlongs.add("[" + value + ", \"" + HEX.formatHex(bytes.toByteArray()) + "\"]");
            }
        }
        List<String> uvarints = new ArrayList<>();
        for (int bit = 0; bit < 32; bit++) {
            for (int value : new int[] {(1 << bit) - 1, 1 << bit}) {
                ByteBuffer buffer = ByteBuffer.allocate(5);
                ByteUtils.writeUnsignedVarint(value, buffer);
                String hex = HEX.formatHex(buffer.array(), 0, buffer.position());
                uvarints.add("[" + Integer.toUnsignedLong(value) + ", \"" + hex + "\"]");
            }
        }
        System.out.println("{\"kafka\": \"4.3.1\", \"messages\": [\n" + String.join(",\n", messages)
            + "],\n\"varlongs\": [" + String.join(", ", varlongs)
            + "],\n\"uvarints\": [" + String.join(", ", uvarints) + "]}");
    }

    static String message(byte magic, long timestamp, byte[] key, byte[] value, TimestampType type) {
        ByteBuffer written = LegacyRecord.create(magic, timestamp, key, value, CompressionType.NONE, type).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return "{\"magic\": " + magic + ", \"timestamp\": " + timestamp
            + ", \"logAppendTime\": " + (type == TimestampType.LOG_APPEND_TIME)
            + ", \"key\": " + hex(key) + ", \"value\": " + hex(value) + ", \"message\": " + hex(bytes) + "}";
    }

    static String hex(byte[] bytes) {
        return bytes == null ? "null" : "\"" + HEX.formatHex(bytes) + "\"";
    }
}
