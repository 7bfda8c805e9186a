import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills topics for a cleaner: `Writer bootstrap seed topic,codec,kind,size,duplicates,records ...`. The kind is plain,
 * idempotent or transactional, `duplicates` the percentage of records whose key was there before. One record in twenty
 * is a tombstone; of the transactions every third is aborted, and two producers have theirs open at the same time.
 */
public final class Writer {
    private final String bootstrap;
    private final Random random;

    private Writer(String bootstrap, long seed) {
        this.bootstrap = bootstrap;
        this.random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        Writer writer = new Writer(args[0], Long.parseLong(args[1]));
        for (int i = 2; i < args.length; i++) {
            String[] field = args[i].split(",");
            writer.fill(field[0], field[1], field[2], Integer.parseInt(field[3]), Integer.parseInt(field[4]),
                Integer.parseInt(field[5]));
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String codec, boolean idempotent, String transactionalId) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", codec);
        config.put("linger.ms", "5");
        config.put("enable.idempotence", Boolean.toString(idempotent || transactionalId != null));
        config.put("acks", "all");
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void fill(String topic, String codec, String kind, int size, int duplicates, int records) throws Exception {
        int keys = 0;
        int transactions = 0;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        boolean transactional = kind.equals("transactional");
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < (transactional ? 2 : 1); i++) {
            String id = transactional ? topic + "-" + i : null;
            KafkaProducer<byte[], byte[]> producer = producer(codec, kind.equals("idempotent"), id);
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            producers.add(producer);
        }
        for (int i = 0; i < records; i++) {
            boolean again = keys > 0 && random.nextInt(100) < duplicates;
            int key = again ? random.nextInt(keys) : keys++;
            KafkaProducer<byte[], byte[]> producer = producers.get(i % producers.size());
            sent.add(producer.send(new ProducerRecord<>(topic, 0, bytes("key-" + key), value(size))));
            if (transactional && random.nextInt(120) == 0) {
                if (transactions++ % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                producer.beginTransaction();
            }
        }
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            if (transactional) {
                producer.commitTransaction();
            }
            producer.close();
        }
        if (!transactional) {
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    /** Half random, half dots: some codecs have something to do, and what they make is not tiny. */
    private byte[] value(int size) {
        if (random.nextInt(20) == 0) {
            return null;
        }
        byte[] made = new byte[size];
        random.nextBytes(made);
        for (int i = size / 2; i < size; i++) {
            made[i] = '.';
        }
        return made;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
