import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer whose topics the broker finds by a regular expression. It says which partitions it has whenever that
 * changes, or "invalid" if the broker does not take the expression. Arguments: bootstrap, group, expression.
 */
public final class PatternMember implements ConsumerRebalanceListener {
    private final TreeSet<String> assigned = new TreeSet<>();

    public static void main(String[] args) throws IOException {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("group.protocol", "consumer");
        config.put("group.remote.assignor", "range");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(new SubscriptionPattern(args[2]), new PatternMember());
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
            }
        } catch (InvalidRegularExpression error) {
            System.out.println("invalid");
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(each -> assigned.add(each.toString()));
        System.out.println("assigned " + String.join(" ", assigned));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(each -> assigned.remove(each.toString()));
        System.out.println("assigned " + String.join(" ", assigned));
    }
}
