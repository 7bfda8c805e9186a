import java.io.FileReader;
import java.io.Reader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Kafka 0.10.2's producer by the settings of each file that is named: what comes of a record, a line for each. */
public final class Secured010 {
    private Secured010() {
    }

    public static void main(String[] args) throws Exception {
        ExecutorService all = Executors.newCachedThreadPool();
        List<Future<String>> outcomes = new ArrayList<>();
        for (String file : args) {
            outcomes.add(all.submit(() -> attempt(file)));
        }
        for (Future<String> outcome : outcomes) {
            System.out.println(outcome.get());
        }
        all.shutdown();
    }

    private static String attempt(String file) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = new FileReader(file)) {
            settings.load(reader);
        }
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(settings.getProperty("topic"), "v")).get();
            return "written";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}
