import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
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
            "topic", definition("org.apache.kafka.storage.internals.log.LogConfig", "configDefCopy"),
            "group", (ConfigDef) Class.forName("org.apache.kafka.coordinator.group.GroupConfig").getField("CONFIG_DEF").get(null));
        Method parse = ConfigDef.class.getDeclaredMethod("parseValue", ConfigDef.ConfigKey.class, Object.class, boolean.class);
        parse.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode wish = JSON.readTree(line);
            ConfigDef.ConfigKey key = definitions.get(wish.get("resource").asText()).configKeys().get(wish.get("name").asText());
            ObjectNode out = JSON.createObjectNode();
            try {
                // 4.2 and later remove duplicates from lists before they validate them.
                Object value = parse.invoke(definitions.get(wish.get("resource").asText()), key, wish.get("value").asText(), true);
                out.put("value", ConfigDef.convertToString(value, key.type));
            } catch (InvocationTargetException e) {
                out.put("error", ((ConfigException) e.getCause()).getMessage());
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
            // 4.2 replaced the method by a field, and gave group settings their defaults from settings of the broker.
            boolean asMethod = hasMethod(group, "configDef");
            root.set("group", keys((ConfigDef) (asMethod ? group.getMethod("configDef").invoke(null) : group.getField("CONFIG_DEF").get(null))));
            if (!asMethod) {
                describeGroupSynonyms(root, group);
            }
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

    private static boolean hasMethod(Class<?> type, String name) {
        return Arrays.stream(type.getMethods()).anyMatch(method -> method.getName().equals(name));
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
        Class<?> type = optional("org.apache.kafka.server.config.DynamicBrokerConfig");
        Object dynamic = null;
        if (type == null) {
            type = Class.forName("kafka.server.DynamicBrokerConfig$");
            dynamic = type.getField("MODULE$").get(null);
        }
        ObjectNode modes = root.putObject("modes");
        for (Map.Entry<?, ?> mode : ((Map<?, ?>) type.getMethod("dynamicConfigUpdateModes").invoke(dynamic)).entrySet()) {
            modes.put((String) mode.getKey(), (String) mode.getValue());
        }
        ObjectNode synonyms = root.putObject("brokerSynonyms");
        Method method = type.getMethod("brokerConfigSynonyms", String.class, boolean.class);
        for (String name : broker.names()) {
            synonyms.put(name, names(method.invoke(dynamic, name, true)));
        }
    }

    /** A list of Java's or Scala's. */
    private static ArrayNode names(Object list) {
        ArrayNode names = JSON.createArrayNode();
        String text = String.valueOf(list);
        for (String name : text.substring(text.indexOf(text.startsWith("[") ? '[' : '(') + 1, text.length() - 1).split(", ")) {
            names.add(name);
        }
        return names;
    }

    private static void describeGroupSynonyms(ObjectNode root, Class<?> group) throws Exception {
        ObjectNode groups = root.putObject("groupSynonyms");
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) group.getField("ALL_GROUP_CONFIG_SYNONYMS").get(null)).entrySet()) {
            groups.put((String) entry.getKey(), (String) ((Optional<?>) entry.getValue()).orElse(null));
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
