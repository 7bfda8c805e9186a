import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions, one aspect a line: "name ok" or "name" and what went wrong. */
public class Transactions {
    static String bootstrap;
    static String topic;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        topic = arguments[1];
        check("commit and abort", Transactions::commitAndAbort);
        check("fence", Transactions::fence);
        check("timeout", Transactions::timeout);
        check("offsets", Transactions::offsets);
        System.exit(0);
    }

    static void check(String name, Check check) {
        try {
            check.run();
            System.out.println(name + " ok");
        } catch (Throwable error) {
            System.out.println(name + " " + error);
            error.printStackTrace();
        }
    }

    static KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("delivery.timeout.ms", 60000);
        settings.put("request.timeout.ms", 10000);
        settings.put("max.block.ms", 60000);
        settings.put("retry.backoff.ms", 20);
        KafkaProducer<String, String> made =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static Consumer<String, String> consumer(String group, String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("fetch.max.wait.ms", 100);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** All values of a partition that can be seen now. */
    static List<String> values(String name, String isolation) {
        TopicPartition partition = new TopicPartition(name, 0);
        List<String> values = new ArrayList<>();
        try (Consumer<String, String> consumer = consumer(null, isolation)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    static void expect(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void commitAndAbort() throws Exception {
        String name = topic + "-a";
        List<String> committed = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(name, 60000)) {
            for (int number = 0; number < 20; number++) {
                producer.beginTransaction();
                for (int index = 0; index < 5; index++) {
                    producer.send(new ProducerRecord<>(name, 0, "k", number + "." + index));
                    producer.send(new ProducerRecord<>(name, 1, "k", number + "." + index));
                }
                if (number % 3 == 1) {
                    producer.flush();
                    expect(committed, values(name, "read_committed"));
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    for (int index = 0; index < 5; index++) {
                        committed.add(number + "." + index);
                    }
                }
            }
            producer.beginTransaction();
            producer.abortTransaction();
        }
        expect(committed, values(name, "read_committed"));
        expect(100, values(name, "read_uncommitted").size());
    }

    static void fence() throws Exception {
        String name = topic + "-b";
        KafkaProducer<String, String> zombie = producer(name, 60000);
        zombie.beginTransaction();
        zombie.send(new ProducerRecord<>(name, 0, "k", "zombie")).get();
        KafkaProducer<String, String> heir = producer(name, 60000);
        heir.beginTransaction();
        heir.send(new ProducerRecord<>(name, 0, "k", "heir")).get();
        heir.commitTransaction();
        boolean fenced = false;
        try {
            zombie.commitTransaction();
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            fenced = true;
        }
        expect(true, fenced);
        while (values(name, "read_committed").isEmpty()) {
            Thread.sleep(20);  // markers are written behind the answer to who commits
        }
        expect(List.of("heir"), values(name, "read_committed"));
        zombie.close(Duration.ofSeconds(1));
        heir.close();
    }

    static void timeout() throws Exception {
        String name = topic + "-c";
        KafkaProducer<String, String> producer = producer(name, 3000);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(name, 0, "k", "late")).get();
        TopicPartition partition = new TopicPartition(name, 0);
        try (Consumer<String, String> consumer = consumer(null, "read_committed")) {
            long deadline = System.currentTimeMillis() + 60000;
            while (consumer.endOffsets(List.of(partition)).get(partition) < 2) {
                expect(true, System.currentTimeMillis() < deadline);
                Thread.sleep(100);
            }
        }
        boolean failed = false;
        try {
            producer.commitTransaction();
        } catch (KafkaException error) {
            failed = true;
        }
        expect(true, failed);
        producer.close(Duration.ofSeconds(1));
        expect(List.of(), values(name, "read_committed"));
    }

    /** Consume, transform, produce: every third time it fails before the commit and begins anew. */
    static void offsets() throws Exception {
        String source = topic + "-d";
        String target = topic + "-e";
        try (KafkaProducer<String, String> producer = producer(source, 60000)) {
            producer.beginTransaction();
            for (int number = 0; number < 50; number++) {
                producer.send(new ProducerRecord<>(source, 0, "k", "v" + number));
            }
            producer.commitTransaction();
        }
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            expected.add("V" + number);
        }
        int round = 0;
        while (values(target, "read_committed").size() < 50) {
            round++;
            expect(true, round < 40);
            try (KafkaProducer<String, String> producer = producer(target, 60000);
                 Consumer<String, String> consumer = consumer(target, "read_committed")) {
                consumer.subscribe(List.of(source));
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                long deadline = System.currentTimeMillis() + 60000;
                int taken = 0;
                while (taken == 0 && System.currentTimeMillis() < deadline) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        if (taken == 0) {
                            producer.beginTransaction();
                        }
                        if (taken++ < 20) {
                            producer.send(new ProducerRecord<>(target, 0, "k", record.value().toUpperCase()));
                            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                            offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                        }
                    }
                }
                if (taken > 0) {
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (round % 3 == 1) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
            }
        }
        expect(expected, values(target, "read_committed"));
    }
}
