package tidelog.judge;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Some members of one group read a topic together until they have read a number of records, and commit what they read.
 * Prints, per member, the partitions that it held at the end and the values that it read.
 *
 * Arguments: bootstrap, group, topic, members, records, then settings as name=value.
 */
public final class GroupRun {
    private static final long TIMEOUT_MS = 60_000;

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        for (int n = 5; n < args.length; n++)
            settings.put(args[n].split("=", 2)[0], args[n].split("=", 2)[1]);
        int wanted = Integer.parseInt(args[4]);
        AtomicInteger left = new AtomicInteger(wanted);
        AtomicInteger idle = new AtomicInteger(Integer.parseInt(args[3]));
        List<CompletableFuture<ObjectNode>> members = new ArrayList<>();
        for (int n = 0; n < Integer.parseInt(args[3]); n++)
            members.add(CompletableFuture.supplyAsync(() -> member(settings, args[2], left, idle), work -> new Thread(work).start()));
        ArrayNode answer = new ObjectMapper().createArrayNode();
        for (CompletableFuture<ObjectNode> member : members)
            answer.add(member.get());
        System.out.println(answer);
    }

    /** Reads on until the group has all its records and every member has held a partition. */
    private static ObjectNode member(Map<String, Object> settings, String topic, AtomicInteger left, AtomicInteger idle) {
        ObjectNode seen = new ObjectMapper().createObjectNode();
        ArrayNode values = seen.putArray("values");
        boolean held = false;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.currentTimeMillis() + TIMEOUT_MS;
            while ((left.get() > 0 || idle.get() > 0) && System.currentTimeMillis() < deadline) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (!held && !consumer.assignment().isEmpty()) {
                    held = true;
                    idle.decrementAndGet();
                }
                for (ConsumerRecord<String, String> record : records)
                    values.add(record.value());
                if (!records.isEmpty()) {
                    consumer.commitSync();
                    left.addAndGet(-records.count());
                }
            }
            ArrayNode partitions = seen.putArray("partitions");
            TreeSet<Integer> numbers = new TreeSet<>();
            for (TopicPartition at : consumer.assignment())
                numbers.add(at.partition());
            numbers.forEach(partitions::add);
            seen.put("generation", consumer.groupMetadata().generationId());
        }
        return seen;
    }
}
