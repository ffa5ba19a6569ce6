import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TimeZone;
import java.util.TreeMap;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Does with Kafka Connect what each line of standard input asks for, and prints what came of it in a line:
 * java -cp "CONNECT_JARS/*" RunConnect.java
 *
 * A line is a vector without its result, with its "kind"; the forms are those of tests/support/connect/forms.py. What is
 * printed is the vector's result, or {"broken": ...} if the vector itself is wrong. One more kind of vectors is one more
 * entry of KINDS.
 */
public class RunConnect {
    interface Kind {
        ObjectNode run(JsonNode vector) throws Exception;
    }

    /** The vector is wrong, not what Kafka does with it. */
    static class BrokenVector extends RuntimeException {
        BrokenVector(Object what) {
            super(String.valueOf(what));
        }
    }

    static final Map<String, Kind> KINDS = Map.of(
        "values", RunConnect::values,
        "simple_header_converter", RunConnect::converter,
        "header_converters", RunConnect::converter,
        "transforms", RunConnect::transform);

    static final String TRANSFORMS = "org.apache.kafka.connect.transforms.";
    static final ObjectMapper JSON = new ObjectMapper();
    static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws IOException {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        Locale.setDefault(Locale.ROOT);
        JSON.getFactory().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder results = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode vector = JSON.readTree(line);
            ObjectNode result;
            try {
                result = guarded(() -> KINDS.get(vector.get("kind").textValue()).run(vector));
            } catch (BrokenVector e) {
                result = NODES.objectNode().put("broken", e.getMessage());
            }
            results.append(JSON.writeValueAsString(result)).append('\n');
        }
        System.out.print(results);
    }

    interface Step {
        ObjectNode take() throws Exception;
    }

    static ObjectNode guarded(Step step) {
        try {
            return step.take();
        } catch (BrokenVector e) {
            throw e;
        } catch (Exception | StackOverflowError e) {
            return NODES.objectNode().put("error", e.getClass().getSimpleName());
        }
    }

    // Kinds

    static ObjectNode values(JsonNode vector) throws Exception {
        String operation = vector.get("op").textValue();
        if (operation.equals("parseString")) {
            SchemaAndValue parsed = Values.parseString(vector.get("input").textValue());
            ObjectNode result = ofSchemaAndValue(parsed);
            if (parsed != null && parsed.value() != null) {
                result.set("reprint", guarded(() -> one("value", ofValue(Values.convertToString(parsed.schema(), parsed.value())))));
            }
            return result;
        }
        Object value = toValue(vector.get("value"));
        if (operation.equals("inferSchema")) {
            return one("schema", ofSchema(Values.inferSchema(value)));
        }
        Schema schema = toSchema(vector.get("schema"));
        Object converted = switch (operation) {
            case "convertToBoolean" -> Values.convertToBoolean(schema, value);
            case "convertToByte" -> Values.convertToByte(schema, value);
            case "convertToDate" -> Values.convertToDate(schema, value);
            case "convertToDecimal" -> Values.convertToDecimal(schema, value, vector.get("scale").intValue());
            case "convertToDouble" -> Values.convertToDouble(schema, value);
            case "convertToFloat" -> Values.convertToFloat(schema, value);
            case "convertToInteger" -> Values.convertToInteger(schema, value);
            case "convertToList" -> Values.convertToList(schema, value);
            case "convertToLong" -> Values.convertToLong(schema, value);
            case "convertToMap" -> Values.convertToMap(schema, value);
            case "convertToShort" -> Values.convertToShort(schema, value);
            case "convertToString" -> Values.convertToString(schema, value);
            case "convertToStruct" -> Values.convertToStruct(schema, value);
            case "convertToTime" -> Values.convertToTime(schema, value);
            case "convertToTimestamp" -> Values.convertToTimestamp(schema, value);
            default -> throw new BrokenVector(operation);
        };
        return one("value", ofValue(converted));
    }

    static ObjectNode converter(JsonNode vector) throws Exception {
        Map<String, Object> properties = new HashMap<>(Map.of("converter.type", "header"));
        vector.path("config").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().textValue()));
        String name = vector.path("converter").asText("simple");
        try (HeaderConverter converter = switch (name) {
            case "bytearray" -> new ByteArrayConverter();
            case "json" -> new JsonConverter();
            case "simple" -> new SimpleHeaderConverter();
            case "string" -> new StringConverter();
            default -> throw new BrokenVector(name);
        }) {
            ObjectNode failed = guarded(() -> {
                converter.configure(properties);
                return NODES.objectNode();
            });
            if (failed.has("error")) {
                return failed.put("phase", "configure");
            }
            if (vector.get("op").textValue().equals("toConnectHeader")) {
                return ofSchemaAndValue(converter.toConnectHeader("t", "h", toBytes(vector.get("bytes"))));
            }
            Object value = toValue(vector.get("value"));
            byte[] written = converter.fromConnectHeader("t", "h", toSchema(vector.get("schema")), value);
            ObjectNode result = one("bytes", ofBytes(written));
            result.set("readBack", guarded(() -> ofSchemaAndValue(converter.toConnectHeader("t", "h", written))));
            return result;
        }
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    static ObjectNode transform(JsonNode vector) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        vector.get("config").fields().forEachRemaining(
            e -> properties.put(e.getKey(), e.getValue().isBoolean() ? (Object) e.getValue().booleanValue() : e.getValue().textValue()));
        ConnectRecord record = toRecord(vector.get("record"));
        Configurable made = (Configurable) Class.forName(TRANSFORMS + vector.get("smt").textValue()).getDeclaredConstructor().newInstance();
        ObjectNode failed = guarded(() -> {
            made.configure(properties);
            return NODES.objectNode();
        });
        if (failed.has("error")) {
            return failed.put("phase", "configure");
        }
        if (made instanceof Predicate predicate) {
            return one("test", NODES.booleanNode(predicate.test(record)));
        }
        ObjectNode applied = guarded(() -> one("record", ofRecord(((Transformation) made).apply(record))));
        return applied.has("error") ? applied.put("phase", "apply") : applied;
    }

    // Forms to values

    static ConnectRecord<?> toRecord(JsonNode form) {
        try {
            String topic = form.path("topic").asText("topic");
            Long time = form.has("timestamp") ? (Long) toValue(form.get("timestamp")) : Long.valueOf(1700000000123L);
            ConnectHeaders headers = new ConnectHeaders();
            form.get("headers").forEach(
                each -> headers.add(each.get("key").textValue(), toValue(each.get("value")), toSchema(each.get("schema"))));
            Schema keySchema = toSchema(form.get("keySchema"));
            Schema valueSchema = toSchema(form.get("valueSchema"));
            Object key = toValue(form.get("key"));
            Object value = toValue(form.get("value"));
            if (form.has("offset")) {
                return new SinkRecord(
                    topic, 3, keySchema, key, valueSchema, value, form.get("offset").longValue(), time, TimestampType.CREATE_TIME, headers);
            }
            return new SourceRecord(Map.of(), Map.of(), topic, 3, keySchema, key, valueSchema, value, time, headers);
        } catch (RuntimeException e) {
            throw new BrokenVector(e);
        }
    }

    static Object toValue(JsonNode form) {
        if (isNone(form)) {
            return null;
        }
        String tag = form.fieldNames().next();
        JsonNode content = form.get(tag);
        return switch (tag) {
            case "bool" -> content.booleanValue();
            case "int8" -> (byte) content.intValue();
            case "int16" -> (short) content.intValue();
            case "int32" -> content.intValue();
            case "int64" -> content.longValue();
            case "float32" -> Float.valueOf(content.textValue());
            case "float64" -> Double.valueOf(content.textValue());
            case "decimal" -> new BigDecimal(content.textValue());
            case "bigint" -> new BigInteger(content.textValue());
            case "string" -> content.textValue();
            case "bytes" -> toBytes(content);
            case "bytebuffer" -> ByteBuffer.wrap(toBytes(content));
            case "millis" -> new Date(content.longValue());
            case "array" -> toList(content);
            case "map" -> toMap(content);
            case "struct" -> toStruct(content);
            default -> throw new BrokenVector(form);
        };
    }

    static List<Object> toList(JsonNode elements) {
        List<Object> list = new ArrayList<>();
        elements.forEach(each -> list.add(toValue(each)));
        return list;
    }

    static Map<Object, Object> toMap(JsonNode pairs) {
        Map<Object, Object> map = new LinkedHashMap<>();
        pairs.forEach(pair -> map.put(toValue(pair.get(0)), toValue(pair.get(1))));
        return map;
    }

    static Struct toStruct(JsonNode content) {
        try {
            Struct struct = new Struct(toSchema(content.get("schema")));
            content.get("fields").forEach(pair -> struct.put(pair.get(0).textValue(), toValue(pair.get(1))));
            return struct;
        } catch (RuntimeException e) {
            throw new BrokenVector(e);
        }
    }

    static Schema toSchema(JsonNode form) {
        if (isNone(form)) {
            return null;
        }
        Schema.Type type = Schema.Type.valueOf(form.get("type").textValue());
        if (type == Schema.Type.ARRAY && isNone(form.get("valueSchema"))) {
            return Values.parseString("[]").schema(); // nobody else can make one
        }
        SchemaBuilder builder = switch (type) {
            case ARRAY -> SchemaBuilder.array(toSchema(form.get("valueSchema")));
            case MAP -> SchemaBuilder.map(toSchema(form.get("keySchema")), toSchema(form.get("valueSchema")));
            default -> SchemaBuilder.type(type);
        };
        if (form.path("optional").booleanValue()) {
            builder.optional();
        }
        if (form.has("name")) {
            builder.name(form.get("name").textValue());
        }
        if (form.has("version")) {
            builder.version(form.get("version").intValue());
        }
        if (form.has("doc")) {
            builder.doc(form.get("doc").textValue());
        }
        form.path("parameters").fields().forEachRemaining(e -> builder.parameter(e.getKey(), e.getValue().textValue()));
        form.path("fields").forEach(pair -> builder.field(pair.get(0).textValue(), toSchema(pair.get(1))));
        if (form.has("default")) {
            builder.defaultValue(toValue(form.get("default")));
        }
        return builder.build();
    }

    static byte[] toBytes(JsonNode digits) {
        return isNone(digits) ? null : HEX.parseHex(digits.textValue());
    }

    static boolean isNone(JsonNode form) {
        return form == null || form.isNull() || form.isMissingNode();
    }

    // Values to forms

    static ObjectNode ofRecord(ConnectRecord<?> record) {
        ObjectNode node = NODES.objectNode();
        if (!record.topic().equals("topic")) {
            node.put("topic", record.topic());
        }
        node.set("keySchema", ofSchema(record.keySchema()));
        node.set("key", ofValue(record.key()));
        node.set("valueSchema", ofSchema(record.valueSchema()));
        node.set("value", ofValue(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            ObjectNode each = headers.addObject().put("key", header.key());
            each.set("schema", ofSchema(header.schema()));
            each.set("value", ofValue(header.value()));
        }
        return node;
    }

    static ObjectNode one(String name, JsonNode content) {
        ObjectNode node = NODES.objectNode();
        node.set(name, content);
        return node;
    }

    static ObjectNode ofSchemaAndValue(SchemaAndValue found) {
        if (found == null) {
            return NODES.objectNode().put("null", true);
        }
        ObjectNode node = one("schema", ofSchema(found.schema()));
        node.set("value", ofValue(found.value()));
        return node;
    }

    static JsonNode ofValue(Object value) {
        ObjectNode node = NODES.objectNode();
        if (value == null) {
            return NODES.nullNode();
        } else if (value instanceof Boolean known) {
            node.put("bool", known);
        } else if (value instanceof Byte known) {
            node.put("int8", known.intValue());
        } else if (value instanceof Short known) {
            node.put("int16", known);
        } else if (value instanceof Integer known) {
            node.put("int32", known);
        } else if (value instanceof Long known) {
            node.put("int64", known);
        } else if (value instanceof Float known) {
            node.put("float32", known.toString());
        } else if (value instanceof Double known) {
            node.put("float64", known.toString());
        } else if (value instanceof BigDecimal known) {
            node.put("decimal", known.toString());
        } else if (value instanceof String known) {
            node.put("string", known);
        } else if (value instanceof byte[] known) {
            node.set("bytes", ofBytes(known));
        } else if (value instanceof ByteBuffer known) {
            byte[] content = new byte[known.remaining()];
            known.duplicate().get(content);
            node.set("bytebuffer", ofBytes(content));
        } else if (value instanceof BigInteger known) {
            node.put("bigint", known.toString());
        } else if (value instanceof Date known) {
            node.put("millis", known.getTime());
        } else if (value instanceof List<?> known) {
            ArrayNode elements = node.putArray("array");
            known.forEach(each -> elements.add(ofValue(each)));
        } else if (value instanceof Map<?, ?> known) {
            ArrayNode pairs = node.putArray("map");
            // one without an order of its own has that of its keys
            Map<?, ?> ordered = known.getClass() == HashMap.class ? new TreeMap<>(known) : known;
            ordered.forEach((key, each) -> pairs.addArray().add(ofValue(key)).add(ofValue(each)));
        } else if (value instanceof Struct known) {
            ObjectNode content = node.putObject("struct");
            content.set("schema", ofSchema(known.schema()));
            ArrayNode pairs = content.putArray("fields");
            for (Field field : known.schema().fields()) {
                pairs.addArray().add(field.name()).add(ofValue(known.getWithoutDefault(field.name())));
            }
        } else {
            throw new BrokenVector(value.getClass());
        }
        return node;
    }

    static JsonNode ofSchema(Schema schema) {
        if (schema == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode().put("type", schema.type().name());
        if (schema.isOptional()) {
            node.put("optional", true);
        }
        if (schema.name() != null) {
            node.put("name", schema.name());
        }
        if (schema.version() != null) {
            node.put("version", schema.version());
        }
        if (schema.doc() != null) {
            node.put("doc", schema.doc());
        }
        if (schema.parameters() != null && !schema.parameters().isEmpty()) {
            schema.parameters().forEach(node.withObject("/parameters")::put);
        }
        if (schema.defaultValue() != null) {
            node.set("default", ofValue(schema.defaultValue()));
        }
        if (schema.type() == Schema.Type.MAP) {
            node.set("keySchema", ofSchema(schema.keySchema()));
        }
        if (schema.type() == Schema.Type.MAP || schema.type() == Schema.Type.ARRAY) {
            node.set("valueSchema", ofSchema(schema.valueSchema()));
        }
        if (schema.type() == Schema.Type.STRUCT) {
            ArrayNode fields = node.putArray("fields");
            schema.fields().forEach(field -> fields.addArray().add(field.name()).add(ofSchema(field.schema())));
        }
        return node;
    }

    static JsonNode ofBytes(byte[] bytes) {
        return bytes == null ? NODES.nullNode() : NODES.textNode(HEX.formatHex(bytes));
    }
}
