import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;

/** The whole scenario of the compatibility table with the Java clients of Kafka 3.9 and 4.4. */
public final class Modern extends Plain {
    private final Admin admin;

    private Modern(String bootstrap) {
        super(bootstrap);
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(config);
    }

    public static void main(String[] args) {
        Modern scenario = new Modern(args[0]);
        Report.feature("create", scenario::create);
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4", "zstd")) {
            Report.feature(codec, () -> scenario.codec(codec));
        }
        Report.feature("acks", scenario::acks);
        Report.feature("idempotent", scenario::idempotent);
        Report.feature("headers", scenario::headers);
        Report.feature("nulls", scenario::nulls);
        Report.feature("large", scenario::large);
        Report.feature("partitions", scenario::partitions);
        Report.feature("offsets", scenario::offsets);
        Report.feature("timestamps", scenario::timestamps);
        Report.feature("delete-records", scenario::deleteRecords);
        Report.feature("configs", scenario::configs);
        Report.feature("topics", scenario::topics);
        scenario.admin.close();
    }

    private String newTopic(int partitions) throws Exception {
        String topic = "java-" + UUID.randomUUID().toString().substring(0, 8);
        admin.createTopics(Collections.singleton(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    private void create() throws Exception {
        String topic = newTopic(3);
        admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(5))).all().get();
        TopicDescription described = admin.describeTopics(Collections.singleton(topic)).allTopicNames().get().get(topic);
        Report.equal(5, described.partitions().size());
        Collection<NewTopic> again = Collections.singleton(new NewTopic(topic, 1, (short) 1));
        expect(TopicExistsException.class, () -> admin.createTopics(again).all().get());
        Report.equal(1, admin.describeCluster().nodes().get().size());
        admin.deleteTopics(Collections.singleton(topic)).all().get();
    }

    private static void expect(Class<? extends Throwable> kind, Report.Check check) throws Exception {
        try {
            check.run();
        } catch (ExecutionException error) {
            if (kind.isInstance(error.getCause())) {
                return;
            }
            throw error;
        } catch (Exception error) {
            if (kind.isInstance(error)) {
                return;
            }
            throw error;
        }
        throw new AssertionError("expected " + kind.getSimpleName());
    }

    private void codec(String codec) throws Exception {
        String topic = newTopic(1);
        List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 3000);
        send(sent, "compression.type", codec);
        checkSame(sent, read(topic, 0, 3000));
    }

    private void acks() throws Exception {
        for (String acks : Arrays.asList("0", "1", "all")) {
            String topic = newTopic(1);
            List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 50);
            send(sent, "acks", acks, "enable.idempotence", "false");
            checkSame(sent, read(topic, 0, 50));
        }
    }

    private void idempotent() throws Exception {
        String topic = newTopic(1);
        List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 5000);
        List<RecordMetadata> answers = send(sent, "enable.idempotence", "true", "batch.size", "2000");
        for (int i = 0; i < 5000; i++) {
            Report.equal((long) i, answers.get(i).offset());
        }
        checkSame(sent, read(topic, 0, 5000));
    }

    private void headers() throws Exception {
        String topic = newTopic(1);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, bytes("k"), bytes("v"));
        record.headers().add("a", bytes("1")).add("a", bytes("2")).add("none", null);
        send(Collections.singletonList(record));
        ConsumerRecord<byte[], byte[]> got = read(topic, 0, 1).get(0);
        Report.equal(record.headers(), got.headers());
    }

    private void nulls() throws Exception {
        String topic = newTopic(1);
        List<ProducerRecord<byte[], byte[]>> sent = Arrays.asList(
            new ProducerRecord<>(topic, 0, null, bytes("v")),
            new ProducerRecord<>(topic, 0, bytes("k"), null),
            new ProducerRecord<>(topic, 0, null, null));
        send(sent);
        checkSame(sent, read(topic, 0, 3));
    }

    private void large() throws Exception {
        String topic = newTopic(1);
        byte[] value = new byte[900_000];
        new java.util.Random(1).nextBytes(value);
        send(Collections.singletonList(new ProducerRecord<>(topic, 0, null, value)));
        Report.equal(true, Arrays.equals(value, read(topic, 0, 1).get(0).value()));
        ProducerRecord<byte[], byte[]> tooLarge = new ProducerRecord<>(topic, 0, null, new byte[2_000_000]);
        expect(RecordTooLargeException.class,
            () -> send(Collections.singletonList(tooLarge), "max.request.size", "5000000"));
        send(Collections.singletonList(new ProducerRecord<>(topic, 0, null, bytes("after"))));
        Report.equal("after", text(read(topic, 1, 1).get(0).value()));
    }

    private void partitions() throws Exception {
        String topic = newTopic(30);
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < 30; partition++) {
            all.add(new TopicPartition(topic, partition));
            for (int i = 0; i < 20; i++) {
                sent.add(new ProducerRecord<>(topic, partition, null, bytes(partition + "-" + i)));
            }
        }
        send(sent);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Set<String> got = new HashSet<>();
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer, 600)) {
                Report.equal(record.partition() + "-" + record.offset(), text(record.value()));
                got.add(text(record.value()));
            }
            Report.equal(600, got.size());
        }
    }

    private void offsets() throws Exception {
        String topic = newTopic(1);
        send(numbered(topic, 100));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            Report.equal(0L, consumer.position(partition));
            consumer.seekToEnd(Collections.singleton(partition));
            Report.equal(100L, consumer.position(partition));
            Report.equal(100L, consumer.endOffsets(Collections.singleton(partition)).get(partition));
            consumer.seek(partition, 42);
            Report.equal(42L, poll(consumer, 58).get(0).offset());
            consumer.seek(partition, 1000);
            expect(OffsetOutOfRangeException.class, () -> poll(consumer, 1));
        }
    }

    private void timestamps() throws Exception {
        String topic = newTopic(1);
        long start = System.currentTimeMillis() - 100_000;
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            sent.add(new ProducerRecord<>(topic, 0, start + i * 1000L, null, bytes("" + i)));
        }
        send(sent);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            asked.put(partition, start + 20_500);
            Report.equal(21L, consumer.offsetsForTimes(asked).get(partition).offset());
            Report.equal(start + 21_000, consumer.offsetsForTimes(asked).get(partition).timestamp());
            asked.put(partition, start + 999_000);
            Report.equal(null, consumer.offsetsForTimes(asked).get(partition));
        }
        Map<TopicPartition, OffsetSpec> newest = Collections.singletonMap(partition, OffsetSpec.maxTimestamp());
        Report.equal(49L, admin.listOffsets(newest).partitionResult(partition).get().offset());
    }

    private void deleteRecords() throws Exception {
        String topic = newTopic(1);
        send(numbered(topic, 10));
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<TopicPartition, RecordsToDelete> asked = Collections.singletonMap(partition, RecordsToDelete.beforeOffset(4));
        Report.equal(4L, admin.deleteRecords(asked).lowWatermarks().get(partition).get().lowWatermark());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Report.equal(4L, consumer.beginningOffsets(Collections.singleton(partition)).get(partition));
        }
        Report.equal(4L, read(topic, 4, 6).get(0).offset());
        expect(OffsetOutOfRangeException.class, () -> read(topic, 3, 1));
    }

    private Config describe(ConfigResource resource) throws Exception {
        return admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource);
    }

    private void configs() throws Exception {
        String topic = newTopic(1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Report.equal("delete", describe(resource).get("cleanup.policy").value());
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Collections.singletonMap(resource, Collections.singleton(set))).all().get();
        Report.equal("2000", describe(resource).get("max.message.bytes").value());
        ProducerRecord<byte[], byte[]> tooLarge = new ProducerRecord<>(topic, 0, null, new byte[3000]);
        expect(RecordTooLargeException.class, () -> send(Collections.singletonList(tooLarge)));
        String broker = String.valueOf(admin.describeCluster().nodes().get().iterator().next().id());
        ConfigResource own = new ConfigResource(ConfigResource.Type.BROKER, broker);
        if (describe(own).get("log.dirs") == null) {
            throw new AssertionError("the broker does not describe log.dirs");
        }
        int id = Integer.parseInt(broker);
        if (admin.describeLogDirs(Collections.singleton(id)).allDescriptions().get().get(id).isEmpty()) {
            throw new AssertionError("the broker has no log directory");
        }
    }

    private void topics() throws Exception {
        Set<String> names = new HashSet<>();
        List<NewTopic> fresh = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            String name = "many-" + UUID.randomUUID();
            names.add(name);
            fresh.add(new NewTopic(name, 1, (short) 1));
        }
        admin.createTopics(fresh).all().get();
        Report.equal(100, admin.describeTopics(names).allTopicNames().get().size());
        Report.equal(true, admin.listTopics().names().get().containsAll(names));
        admin.deleteTopics(names).all().get();
    }
}
