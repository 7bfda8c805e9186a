import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** How Kafka's consumer was polled before 2.0. */
final class Poll {
    private Poll() {
    }

    static ConsumerRecords<byte[], byte[]> once(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.poll(100);
    }
}
