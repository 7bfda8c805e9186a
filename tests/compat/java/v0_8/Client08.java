import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import kafka.api.FetchRequest;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.ErrorMapping;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.RecordTooLargeException;

/**
 * Kafka 0.8.2's clients: both producers and SimpleConsumer, message format v0.
 *
 * <p>{@code Client08 HOST PORT} runs the scenario; {@code Client08 HOST PORT write TOPIC COUNT CODEC} and
 * {@code Client08 HOST PORT read TOPIC} take part in a topic that newer clients use as well.
 */
public final class Client08 {
    private final String host;
    private final int port;

    private Client08(String host, int port) {
        this.host = host;
        this.port = port;
    }

    public static void main(String[] args) throws Exception {
        Client08 scenario = new Client08(args[0], Integer.parseInt(args[1]));
        if (args.length > 2 && args[2].equals("write")) {
            scenario.send(scenario.numbered(args[3], Integer.parseInt(args[4])), "compression.type", args[5]);
            return;
        }
        if (args.length > 2) {
            for (String entry : scenario.readAll(args[3], 0)) {
                System.out.println(entry);
            }
            return;
        }
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4")) {
            Report.feature(codec, () -> scenario.codec(codec));
        }
        Report.feature("acks", scenario::acks);
        Report.feature("nulls", scenario::nulls);
        Report.feature("large", scenario::large);
        Report.feature("partitions", scenario::partitions);
        Report.feature("offsets", scenario::offsets);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Asks for a fresh topic's metadata until the broker has made it. */
    private String newTopic() throws Exception {
        String topic = "java08-" + UUID.randomUUID().toString().substring(0, 8);
        SimpleConsumer consumer = consumer();
        try {
            long deadline = System.currentTimeMillis() + 60_000;
            while (System.currentTimeMillis() < deadline) {
                TopicMetadataRequest request = new TopicMetadataRequest(Collections.singletonList(topic));
                TopicMetadata metadata = consumer.send(request).topicsMetadata().get(0);
                if (metadata.errorCode() == ErrorMapping.NoError() && metadata.partitionsMetadata().get(0).leader() != null) {
                    return topic;
                }
                Thread.sleep(20);
            }
        } finally {
            consumer.close();
        }
        throw new AssertionError("the topic was not made by naming it");
    }

    private List<ProducerRecord<byte[], byte[]>> numbered(String topic, int count) {
        StringBuilder padding = new StringBuilder();
        for (int i = 0; i < 100; i++) {
            padding.append('.');
        }
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            records.add(new ProducerRecord<byte[], byte[]>(topic, 0, bytes("k" + i), bytes("old " + i + padding)));
        }
        return records;
    }

    private List<RecordMetadata> send(List<ProducerRecord<byte[], byte[]>> records, String... settings) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", host + ":" + port);
        config.put("linger.ms", "5");
        config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        List<RecordMetadata> answers = new ArrayList<>();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
        try {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                futures.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : futures) {
                answers.add(future.get());
            }
        } finally {
            producer.close();
        }
        return answers;
    }

    private SimpleConsumer consumer() {
        return new SimpleConsumer(host, port, 30_000, 1 << 20, "java08");
    }

    private FetchResponse fetch(SimpleConsumer consumer, String topic, int partition, long offset, int size) {
        FetchRequest request = new FetchRequestBuilder().clientId("java08").maxWait(500).minBytes(1)
            .addFetch(topic, partition, offset, size).build();
        return consumer.fetch(request);
    }

    /** "offset key value" of every record from {@code offset} on. */
    private List<String> readAll(String topic, int partition) {
        List<String> entries = new ArrayList<>();
        SimpleConsumer consumer = consumer();
        try {
            long end = offsetBefore(consumer, topic, partition, -1L)[0];
            long next = offsetBefore(consumer, topic, partition, -2L)[0];
            int size = 100_000;
            while (next < end) {
                FetchResponse response = fetch(consumer, topic, partition, next, size);
                Report.equal((short) 0, response.errorCode(topic, partition));
                boolean moved = false;
                for (MessageAndOffset each : response.messageSet(topic, partition)) {
                    if (each.offset() < next) {
                        continue;
                    }
                    each.message().ensureValid();
                    entries.add(each.offset() + " " + text(each.message().key()) + " " + text(each.message().payload()));
                    next = each.offset() + 1;
                    moved = true;
                }
                if (!moved) {
                    // A record larger than was asked for comes cut off: ask for more.
                    size *= 2;
                    if (size > 64_000_000) {
                        throw new AssertionError("no record at " + next);
                    }
                }
            }
        } finally {
            consumer.close();
        }
        return entries;
    }

    private long[] offsetBefore(SimpleConsumer consumer, String topic, int partition, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
        asked.put(new TopicAndPartition(topic, partition), new PartitionOffsetRequestInfo(time, 1));
        OffsetResponse response = consumer.getOffsetsBefore(new OffsetRequest(asked, (short) 0, "java08"));
        Report.equal((short) 0, response.errorCode(topic, partition));
        return response.offsets(topic, partition);
    }

    private void checkNumbered(String topic, int count) {
        List<String> got = readAll(topic, 0);
        Report.equal(count, got.size());
        for (int i = 0; i < count; i++) {
            String expected = i + " k" + i + " old " + i + ".";
            Report.equal(true, got.get(i).startsWith(expected));
        }
    }

    private void codec(String codec) throws Exception {
        String topic = newTopic();
        List<RecordMetadata> answers = send(numbered(topic, 2000), "compression.type", codec, "acks", "1");
        for (int i = 0; i < 2000; i++) {
            Report.equal((long) i, answers.get(i).offset());
        }
        checkNumbered(topic, 2000);
    }

    private void acks() throws Exception {
        for (String acks : Arrays.asList("0", "1", "all")) {
            String topic = newTopic();
            send(numbered(topic, 50), "acks", acks);
            long deadline = System.currentTimeMillis() + 60_000;
            while (readAll(topic, 0).size() < 50 && System.currentTimeMillis() < deadline) {
                Thread.sleep(20);
            }
            checkNumbered(topic, 50);
        }
        // The Scala producer of old, synchronous, with all three kinds of acknowledgement.
        for (String acks : Arrays.asList("0", "1", "-1")) {
            String topic = newTopic();
            Properties config = new Properties();
            config.put("metadata.broker.list", host + ":" + port);
            config.put("serializer.class", "kafka.serializer.StringEncoder");
            config.put("request.required.acks", acks);
            Producer<String, String> producer = new Producer<>(new ProducerConfig(config));
            List<KeyedMessage<String, String>> messages = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                messages.add(new KeyedMessage<String, String>(topic, "k" + i, "scala " + i));
            }
            producer.send(messages);
            producer.close();
            long deadline = System.currentTimeMillis() + 60_000;
            while (readAll(topic, 0).size() < 20 && System.currentTimeMillis() < deadline) {
                Thread.sleep(20);
            }
            Report.equal("19 k19 scala 19", readAll(topic, 0).get(19));
        }
    }

    private void nulls() throws Exception {
        String topic = newTopic();
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        sent.add(new ProducerRecord<byte[], byte[]>(topic, 0, null, bytes("v")));
        sent.add(new ProducerRecord<byte[], byte[]>(topic, 0, bytes("k"), null));
        send(sent);
        Report.equal(Arrays.asList("0 null v", "1 k null"), readAll(topic, 0));
    }

    private void large() throws Exception {
        String topic = newTopic();
        byte[] value = new byte[900_000];
        Arrays.fill(value, (byte) 'x');
        send(Collections.singletonList(new ProducerRecord<byte[], byte[]>(topic, 0, null, value)));
        Report.equal(new String(value, StandardCharsets.UTF_8).length() + 7, readAll(topic, 0).get(0).length());
        try {
            send(Collections.singletonList(new ProducerRecord<byte[], byte[]>(topic, 0, null, new byte[2_000_000])),
                "max.request.size", "5000000");
            throw new AssertionError("a record above max.message.bytes was taken");
        } catch (ExecutionException error) {
            Report.equal(RecordTooLargeException.class, error.getCause().getClass());
        }
    }

    private void partitions() throws Exception {
        String topic = System.getProperty("topic30");
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int partition = 0; partition < 30; partition++) {
            for (int i = 0; i < 10; i++) {
                sent.add(new ProducerRecord<byte[], byte[]>(topic, partition, null, bytes(partition + "-" + i)));
            }
        }
        send(sent);
        for (int partition = 0; partition < 30; partition++) {
            List<String> got = readAll(topic, partition);
            Report.equal(10, got.size());
            Report.equal("9 null " + partition + "-9", got.get(9));
        }
    }

    private void offsets() throws Exception {
        String topic = newTopic();
        send(numbered(topic, 100));
        SimpleConsumer consumer = consumer();
        try {
            Report.equal(0L, offsetBefore(consumer, topic, 0, -2L)[0]);
            Report.equal(100L, offsetBefore(consumer, topic, 0, -1L)[0]);
            FetchResponse response = fetch(consumer, topic, 0, 42, 100_000);
            List<Long> offsets = new ArrayList<>();
            for (MessageAndOffset each : response.messageSet(topic, 0)) {
                offsets.add(each.offset());
            }
            Report.equal(true, offsets.contains(42L));
            Report.equal(100L, response.highWatermark(topic, 0));
            FetchResponse refused = fetch(consumer, topic, 0, 1000, 100_000);
            Report.equal(ErrorMapping.OffsetOutOfRangeCode(), refused.errorCode(topic, 0));
            FetchResponse unknown = fetch(consumer, "no-such-topic", 0, 0, 100_000);
            Report.equal(ErrorMapping.UnknownTopicOrPartitionCode(), unknown.errorCode("no-such-topic", 0));
        } finally {
            consumer.close();
        }
    }
}
