import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.serialization.Serdes;

/**
 * Reads lists of bytes as Kafka Streams' ListValueStore does: of each line, which is hexadecimal, prints its entries.
 *
 * <p>That store holds what waits in outer joins, and reads past nothing that follows a list.
 */
public final class ReadLists {

    @SuppressWarnings({"unchecked", "rawtypes"})
    public static void main(String[] args) throws Exception {
        var lists = Serdes.ListSerde((Class) ArrayList.class, Serdes.ByteArray()).deserializer();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<byte[]> entries = (List<byte[]>) lists.deserialize(null, HexFormat.of().parseHex(line));
            System.out.println(String.join(" ", entries.stream().map(HexFormat.of()::formatHex).toList()));
        }
    }
}
