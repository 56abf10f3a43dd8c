package tidelog.judge;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its beginning with assigned partitions, without a group. Each pass is a consumer of its own, and
 * is timed from its first records on. Prints the last pass as JSON.
 */
public final class AssignedConsumerPerformance {
    public static void main(String[] args) {
        String bootstrap = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        long count = Long.parseLong(args[3]);
        int passes = Integer.parseInt(args[4]);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++)
            assigned.add(new TopicPartition(topic, partition));
        for (int pass = 1; pass <= passes; pass++) {
            String measured = read(bootstrap, assigned, count);
            if (pass == passes)
                System.out.println(measured);
        }
    }

    private static String read(String bootstrap, List<TopicPartition> assigned, long count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long seen = 0;
            long bytes = 0;
            long began = 0;
            while (seen < count) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(30));
                if (records.isEmpty())
                    throw new IllegalStateException("only " + seen + " of " + count + " records came");
                if (began == 0) {
                    began = System.nanoTime();
                    seen -= records.count();
                    count -= records.count();
                } else {
                    for (ConsumerRecord<byte[], byte[]> record : records)
                        bytes += record.value().length;
                }
                seen += records.count();
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            return String.format("{\"records_per_s\": %f, \"mb_per_s\": %f}", seen / seconds, bytes / seconds / 1e6);
        }
    }
}
