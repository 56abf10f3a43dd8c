import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the names and types of all options of Kafka's consumer and producer. */
public class ClientOptionNames {
    public static void main(String[] arguments) {
        print(ConsumerConfig.configDef());
        print(ProducerConfig.configDef());
    }

    private static void print(ConfigDef options) {
        options.configKeys().values().forEach(option -> System.out.println(option.name + " " + option.type));
    }
}
