import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes numbers to the partitions of a topic in turn, and says on its output which were acknowledged.
 * Arguments: bootstrap, topic, partitions. It ends when its input ends.
 */
public final class Writer {
    public static void main(String[] args) throws IOException, InterruptedException {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("request.timeout.ms", "5000");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        int partitions = Integer.parseInt(args[2]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int number = 0; System.in.available() == 0; number++) {
                String value = Integer.toString(number);
                byte[] bytes = value.getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(args[1], number % partitions, null, bytes), (metadata, error) -> {
                    synchronized (System.out) {
                        System.out.println(error == null ? "sent " + value : "failed " + value + " " + error);
                    }
                });
                Thread.sleep(2);
            }
        }
    }
}
