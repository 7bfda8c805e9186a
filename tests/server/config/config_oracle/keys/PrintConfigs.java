import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;

/**
 * Prints every configuration key that the Kafka on the class path knows, as JSON. With the argument "parse" it reads
 * {"resource", "name", "value"} objects, one a line, and prints for each the value as parsed or what is wrong with it.
 */
public class PrintConfigs {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("parse")) {
            parseLines();
        } else {
            printKeys();
        }
    }

    private static void parseLines() throws Exception {
        Map<String, ConfigDef> definitions = Map.of(
            "broker", definition("kafka.server.KafkaConfig", "configDef"),
            "topic", definition("org.apache.kafka.storage.internals.log.LogConfig", "configDefCopy"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode wish = JSON.readTree(line);
            ConfigDef.ConfigKey key = definitions.get(wish.get("resource").asText()).configKeys().get(wish.get("name").asText());
            ObjectNode out = JSON.createObjectNode();
            try {
                Object value = ConfigDef.parseType(key.name, wish.get("value").asText(), key.type);
                if (key.validator != null) {
                    key.validator.ensureValid(key.name, value);
                }
                out.put("value", ConfigDef.convertToString(value, key.type));
            } catch (ConfigException e) {
                out.put("error", e.getMessage());
            }
            System.out.println(JSON.writeValueAsString(out));
        }
    }

    private static void printKeys() throws Exception {
        ObjectNode root = JSON.createObjectNode();
        ConfigDef broker = definition("kafka.server.KafkaConfig", "configDef");
        root.set("broker", keys(broker));
        root.set("topic", keys(definition("org.apache.kafka.storage.internals.log.LogConfig", "configDefCopy")));
        root.set("clientMetrics", keys(definition("org.apache.kafka.server.metrics.ClientMetricsConfigs", "configDef")));
        // Groups have settings of their own since 4.0.
        Class<?> group = optional("org.apache.kafka.coordinator.group.GroupConfig");
        if (group != null) {
            root.set("group", keys((ConfigDef) group.getMethod("configDef").invoke(null)));
        }
        describeDynamicKeys(root, broker);
        describeTopicSynonyms(root);
        System.out.println(JSON.writeValueAsString(root));
    }

    private static Class<?> optional(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException e) {
            return null;
        }
    }

    private static ConfigDef definition(String className, String method) throws Exception {
        return (ConfigDef) Class.forName(className).getMethod(method).invoke(null);
    }

    private static ObjectNode keys(ConfigDef definition) {
        ObjectNode result = JSON.createObjectNode();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            ObjectNode out = result.putObject(key.name);
            out.put("type", key.type.name());
            out.put("default", text(key));
            out.put("validator", key.validator == null ? null : key.validator.toString());
            out.put("importance", key.importance.name());
            out.put("internal", key.internalConfig);
        }
        return result;
    }

    private static String text(ConfigDef.ConfigKey key) {
        if (key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) {
            return null;
        }
        return key.defaultValue instanceof Password
            ? ((Password) key.defaultValue).value()
            : ConfigDef.convertToString(key.defaultValue, key.type);
    }

    private static void describeDynamicKeys(ObjectNode root, ConfigDef broker) throws Exception {
        Class<?> type = Class.forName("kafka.server.DynamicBrokerConfig$");
        Object dynamic = type.getField("MODULE$").get(null);
        ObjectNode modes = root.putObject("modes");
        for (Map.Entry<?, ?> mode : ((Map<?, ?>) type.getMethod("dynamicConfigUpdateModes").invoke(dynamic)).entrySet()) {
            modes.put((String) mode.getKey(), (String) mode.getValue());
        }
        ObjectNode synonyms = root.putObject("brokerSynonyms");
        Method method = type.getMethod("brokerConfigSynonyms", String.class, boolean.class);
        for (String name : broker.names()) {
            synonyms.put(name, String.valueOf(method.invoke(dynamic, name, true)));
        }
    }

    @SuppressWarnings("unchecked")
    private static void describeTopicSynonyms(ObjectNode root) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.server.config.ServerTopicConfigSynonyms");
        Map<String, List<?>> all = (Map<String, List<?>>) type.getField("ALL_TOPIC_CONFIG_SYNONYMS").get(null);
        ObjectNode topics = root.putObject("topicSynonyms");
        for (Map.Entry<String, List<?>> entry : all.entrySet()) {
            ArrayNode chain = topics.putArray(entry.getKey());
            for (Object synonym : entry.getValue()) {
                Object converter = synonym.getClass().getMethod("converter").invoke(synonym);
                ArrayNode pair = chain.addArray();
                pair.add((String) synonym.getClass().getMethod("name").invoke(synonym));
                pair.add(((Function<String, String>) converter).apply("1"));
            }
        }
    }
}
