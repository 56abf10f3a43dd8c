// What Apache Kafka itself says about its configuration, for test_config_java_parity.py.
//   definitions             every key: kind, name, type, default, importance, internal, how it may be altered
//   parse                   stdin: kind TAB name TAB base64(text); answers ok TAB base64(text as Kafka writes it), or error
//   properties              stdin: base64(file); answers base64 of key=value pairs, each part in base64, sorted
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;

public class ConfigFacts {
    static ConfigDef definitions(String kind) {
        switch (kind) {
            case "broker": return kafka.server.KafkaConfig.configDef();
            case "topic": return org.apache.kafka.storage.internals.log.LogConfig.configDefCopy();
            case "group": return org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF;
            case "client-metrics": return org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef();
            default: return org.apache.kafka.server.config.QuotaConfig.brokerQuotaConfigs();
        }
    }

    static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    static String decode(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    static void printDefinitions(String kind) {
        Map<String, String> modes = org.apache.kafka.server.config.DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : definitions(kind).configKeys().values()) {
            String fallback = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "<required>";
            System.out.println(String.join("\t", kind, key.name, key.type.toString(), encode(String.valueOf(fallback)),
                    key.importance.toString(), String.valueOf(key.internalConfig), modes.getOrDefault(key.name, "read-only")));
        }
    }

    static String parse(String kind, String name, String text) {
        ConfigDef.ConfigKey key = definitions(kind).configKeys().get(name);
        try {
            Object value = new ConfigDef().define(key).parse(Map.of(name, text)).get(name);
            String written = value instanceof org.apache.kafka.common.config.types.Password
                    ? ((org.apache.kafka.common.config.types.Password) value).value()
                    : ConfigDef.convertToString(value, key.type);
            return "ok\t" + encode(written);
        } catch (Exception e) {
            return "error\t" + encode(String.valueOf(e.getMessage()));
        }
    }

    static String properties(String text) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(text));
        } catch (IllegalArgumentException e) {
            return "error";
        }
        List<String> pairs = new ArrayList<>();
        for (String name : properties.stringPropertyNames())
            pairs.add(encode(name) + "=" + encode(properties.getProperty(name)));
        Collections.sort(pairs);
        return "ok " + String.join(" ", pairs);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("definitions")) {
            for (String kind : List.of("broker", "topic", "group", "client-metrics", "broker-quota")) printDefinitions(kind);
            return;
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            String[] parts = line.split("\t", -1);
            if (arguments[0].equals("parse")) System.out.println(parse(parts[0], parts[1], decode(parts[2])));
            else System.out.println(properties(decode(parts[0])));
        }
    }
}
