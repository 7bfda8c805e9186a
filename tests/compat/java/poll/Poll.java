import java.time.Duration;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** How Kafka's consumer is polled since 2.0. */
final class Poll {
    private Poll() {
    }

    static ConsumerRecords<byte[], byte[]> once(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.poll(Duration.ofMillis(100));
    }
}
