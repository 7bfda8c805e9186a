import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Many transactional producers with short transactions, each in a thread of its own.
 * Arguments: bootstrap, topic, partitions, producers. Prints "committed PRODUCER NUMBER" for each transaction, and
 * "error PRODUCER WHAT" for every exception that reaches the application. It ends when its input ends.
 */
public final class ManyTransactions {
    static volatile boolean isOver = false;

    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[3]);
        Thread[] threads = new Thread[producers];
        for (int number = 0; number < producers; number++) {
            int producer = number;
            threads[number] = new Thread(() -> run(args[0], args[1], Integer.parseInt(args[2]), producer));
            threads[number].start();
        }
        System.in.read();
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void run(String bootstrap, String topic, int partitions, int producer) {
        int number = 0;
        while (!isOver) {
            try (KafkaProducer<String, String> client = client(bootstrap, producer)) {
                client.initTransactions();
                while (!isOver) {
                    number++;
                    String value = producer + ":" + number;
                    client.beginTransaction();
                    for (int part = 0; part < 3; part++) {
                        client.send(new ProducerRecord<>(topic, (number + part) % partitions, null, value));
                    }
                    client.commitTransaction();
                    say("committed " + producer + " " + number);
                }
            } catch (Exception error) {
                String cause = error.getCause() == null ? "" : " caused by " + error.getCause();
                say("error " + producer + " " + (error + cause).replace('\n', ' '));
            }
        }
    }

    static KafkaProducer<String, String> client(String bootstrap, int producer) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", "producer-" + producer);
        config.put("linger.ms", "0");
        config.put("request.timeout.ms", "10000");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }
}
