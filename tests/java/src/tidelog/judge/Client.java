package tidelog.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client as one more stock client of the compatibility tests: a command in JSON on stdin, its answer on stdout. */
public final class Client {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode command = JSON.readTree(System.in);
        ObjectNode answer = JSON.createObjectNode();
        switch (args[0]) {
            case "produce" -> produce(command, answer);
            case "read" -> read(command, answer);
            case "offsets" -> offsets(command, answer);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static Map<String, Object> settings(JsonNode command) {
        Map<String, Object> settings = new HashMap<>();
        command.get("settings").properties().forEach(one -> settings.put(one.getKey(), one.getValue().asText()));
        return settings;
    }

    private static void produce(JsonNode command, ObjectNode answer) throws Exception {
        ArrayNode placed = answer.putArray("placed");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings(command), new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode message : command.get("messages"))
                sent.add(producer.send(record(command.get("topic").asText(), message)));
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata at = one.get();
                placed.addArray().add(at.partition()).add(at.hasOffset() ? at.offset() : -1);
            }
        } catch (ExecutionException e) {
            answer.put("error", Errors.forException(e.getCause()).code());
            answer.put("text", String.valueOf(e.getCause()));
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode message) throws IOException {
        JsonNode stamp = message.get("timestamp_ms");
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, message.get("partition").asInt(),
            stamp.isNull() ? null : stamp.asLong(), message.get("key").binaryValue(), message.get("value").binaryValue());
        for (JsonNode header : message.get("headers"))
            record.headers().add(header.get(0).asText(), header.get(1).binaryValue());
        return record;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode command) {
        return new KafkaConsumer<>(settings(command), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void read(JsonNode command, ObjectNode answer) {
        ArrayNode records = answer.putArray("records");
        long deadline = System.currentTimeMillis() + command.get("timeout_ms").asLong();
        int count = command.get("count").asInt();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (JsonNode partition : command.get("partitions"))
                assigned.add(new TopicPartition(command.get("topic").asText(), partition.asInt()));
            consumer.assign(assigned);
            if (command.get("offset").isNull())
                consumer.seekToBeginning(assigned);
            else
                assigned.forEach(at -> consumer.seek(at, command.get("offset").asLong()));
            while (records.size() < count && System.currentTimeMillis() < deadline)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200)))
                    records.add(described(record));
        }
    }

    private static ArrayNode described(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode fields = JSON.createArrayNode().add(record.partition()).add(record.offset());
        fields.add(text(record.key())).add(text(record.value()));
        ArrayNode headers = fields.addArray();
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(text(header.value()));
        return fields.add(record.timestamp()).add(record.timestampType().id);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static void offsets(JsonNode command, ObjectNode answer) {
        TopicPartition at = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            if (command.has("timestamp_ms")) {
                OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(at, command.get("timestamp_ms").asLong())).get(at);
                answer.put("offset", found == null ? null : (Long) found.offset());
            } else {
                answer.put("begin", consumer.beginningOffsets(List.of(at)).get(at));
                answer.put("end", consumer.endOffsets(List.of(at)).get(at));
            }
        }
    }
}
