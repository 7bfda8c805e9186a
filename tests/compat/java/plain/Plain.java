import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What all of Kafka's clients since 0.10 share: bytes that are sent and read again. */
abstract class Plain {
    private final String bootstrap;
    private final String[] producerSettings;

    Plain(String bootstrap, String... producerSettings) {
        this.bootstrap = bootstrap;
        this.producerSettings = producerSettings;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static void put(Properties config, String... settings) {
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String... settings) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", "5");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        put(config, producerSettings);
        put(config, settings);
        return new KafkaProducer<>(config);
    }

    List<RecordMetadata> send(List<ProducerRecord<byte[], byte[]>> records, String... settings) throws Exception {
        List<RecordMetadata> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                futures.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> future : futures) {
                answers.add(future.get());
            }
        }
        return answers;
    }

    static List<ProducerRecord<byte[], byte[]>> numbered(String topic, int count) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            records.add(new ProducerRecord<>(topic, 0, bytes("k" + i), bytes("value " + i + " ".repeat(100))));
        }
        return records;
    }

    KafkaConsumer<byte[], byte[]> consumer() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(config);
    }

    List<ConsumerRecord<byte[], byte[]>> read(String topic, long offset, int count) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, offset);
            return poll(consumer, count);
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 60_000;
        while (got.size() < count && System.currentTimeMillis() < deadline) {
            Poll.once(consumer).forEach(got::add);
        }
        if (got.size() < count) {
            throw new AssertionError(got.size() + " of " + count + " records came");
        }
        return got;
    }

    static void checkSame(List<ProducerRecord<byte[], byte[]>> sent, List<ConsumerRecord<byte[], byte[]>> got) {
        for (int i = 0; i < sent.size(); i++) {
            Report.equal((long) i, got.get(i).offset());
            Report.equal(text(sent.get(i).key()), text(got.get(i).key()));
            Report.equal(text(sent.get(i).value()), text(got.get(i).value()));
        }
    }
}
