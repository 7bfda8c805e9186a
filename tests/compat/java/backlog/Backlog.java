import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads one record of each partition with the consumer's own defaults, and prints their sum of bytes. */
public final class Backlog {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo info : consumer.partitionsFor(args[1])) {
                partitions.add(new TopicPartition(args[1], info.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            int count = 0;
            long bytes = 0;
            long deadline = System.nanoTime() + 150_000_000_000L;
            while (count < partitions.size() && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : Poll.once(consumer)) {
                    count++;
                    bytes += record.value().length;
                }
            }
            System.out.println(count + " " + bytes);
        }
    }
}
