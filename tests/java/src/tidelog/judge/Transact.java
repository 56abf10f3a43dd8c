package tidelog.judge;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional Java producer. Arguments: bootstrap, transactional id, topic, partitions, records in a transaction,
 * then what becomes of each transaction: commit, abort, or open, which leaves it open and ends the program.
 */
public final class Transact {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", args[0], "transactional.id", args[1]));
        int partitions = Integer.parseInt(args[3]);
        int records = Integer.parseInt(args[4]);
        List<String> ends = IntStream.range(5, args.length).mapToObj(n -> args[n]).collect(Collectors.toList());
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        for (int n = 0; n < ends.size(); n++) {
            producer.beginTransaction();
            for (int m = 0; m < records; m++)
                producer.send(new ProducerRecord<>(args[2], m % partitions, null, n + "-" + m));
            producer.flush();
            switch (ends.get(n)) {
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> {
                    // Closing would abort it; the transaction is left to whoever looks for hanging ones.
                    System.out.println("left open");
                    return;
                }
            }
        }
        producer.close();
    }
}
