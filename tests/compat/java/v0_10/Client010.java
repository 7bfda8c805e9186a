import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;

/** Kafka 0.10.2's Java clients: message format v1, topics made by naming them. */
public final class Client010 extends Plain {
    private Client010(String bootstrap) {
        super(bootstrap, "retries", "5", "max.in.flight.requests.per.connection", "1");
    }

    public static void main(String[] args) {
        Client010 scenario = new Client010(args[0]);
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4")) {
            Report.feature(codec, () -> scenario.codec(codec));
        }
        Report.feature("acks", scenario::acks);
        Report.feature("nulls", scenario::nulls);
        Report.feature("large", scenario::large);
        Report.feature("offsets", scenario::offsets);
        Report.feature("timestamps", scenario::timestamps);
    }

    private static String newTopic() {
        return "java010-" + UUID.randomUUID().toString().substring(0, 8);
    }

    private void codec(String codec) throws Exception {
        String topic = newTopic();
        List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 2000);
        send(sent, "compression.type", codec);
        checkSame(sent, read(topic, 0, 2000));
        Report.equal(1000L, read(topic, 1000, 5).get(0).offset());
    }

    private void acks() throws Exception {
        for (String acks : Arrays.asList("1", "all")) {
            String topic = newTopic();
            List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 50);
            send(sent, "acks", acks);
            checkSame(sent, read(topic, 0, 50));
        }
        // With acks 0 the topic has to be there first: nobody would tell the producer to try again.
        String topic = newTopic();
        send(numbered(topic, 1));
        send(numbered(topic, 50), "acks", "0");
        Report.equal(50L, read(topic, 0, 51).get(50).offset());
    }

    private void nulls() throws Exception {
        String topic = newTopic();
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        sent.add(new ProducerRecord<>(topic, 0, (byte[]) null, bytes("v")));
        sent.add(new ProducerRecord<>(topic, 0, bytes("k"), (byte[]) null));
        send(sent);
        checkSame(sent, read(topic, 0, 2));
    }

    private void large() throws Exception {
        String topic = newTopic();
        byte[] value = new byte[900_000];
        new java.util.Random(1).nextBytes(value);
        send(Collections.singletonList(new ProducerRecord<byte[], byte[]>(topic, 0, null, value)));
        Report.equal(true, Arrays.equals(value, read(topic, 0, 1).get(0).value()));
        try {
            send(Collections.singletonList(new ProducerRecord<byte[], byte[]>(topic, 0, null, new byte[2_000_000])),
                "max.request.size", "5000000");
            throw new AssertionError("a record above max.message.bytes was taken");
        } catch (ExecutionException error) {
            Report.equal(RecordTooLargeException.class, error.getCause().getClass());
        }
    }

    private void offsets() throws Exception {
        String topic = newTopic();
        send(numbered(topic, 100));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            Report.equal(0L, consumer.position(partition));
            consumer.seekToEnd(Collections.singleton(partition));
            Report.equal(100L, consumer.position(partition));
            consumer.seek(partition, 42);
            Report.equal(42L, poll(consumer, 58).get(0).offset());
            consumer.seek(partition, 1000);
            try {
                poll(consumer, 1);
                throw new AssertionError("an offset out of range was answered");
            } catch (OffsetOutOfRangeException expected) {
                Report.equal(true, expected.offsetOutOfRangePartitions().containsKey(partition));
            }
        }
    }

    private void timestamps() throws Exception {
        String topic = newTopic();
        long start = System.currentTimeMillis() - 100_000;
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            sent.add(new ProducerRecord<>(topic, 0, start + i * 1000L, (byte[]) null, bytes("" + i)));
        }
        send(sent, "compression.type", "gzip");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            asked.put(partition, start + 20_500);
            Report.equal(21L, consumer.offsetsForTimes(asked).get(partition).offset());
        }
        Report.equal(start + 30_000, read(topic, 30, 1).get(0).timestamp());
    }
}
