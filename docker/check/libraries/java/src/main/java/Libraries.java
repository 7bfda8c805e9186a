import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.Container;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Starts the image with each class for Kafka, and sends records to the address that the class returns. */
public class Libraries {
    private static final String APACHE = "apache/kafka:4.99.0";
    private static final String NATIVE = "apache/kafka-native:4.99.0";
    private static final String CONFLUENT_7 = "confluentinc/cp-kafka:7.99.0";
    private static final String CONFLUENT_8 = "confluentinc/cp-kafka:8.99.0";
    private static final String CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw";
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    private static final int RECORDS = 100;

    public static void main(String[] arguments) throws Exception {
        for (String image : List.of(APACHE, NATIVE)) {
            try (KafkaContainer kafka = new KafkaContainer(image)) {
                check("KafkaContainer", kafka, kafka::getBootstrapServers, CLUSTER_ID);
            }
        }
        DockerImageName own = DockerImageName.parse("barnabas-broker");
        try (KafkaContainer kafka = new KafkaContainer(own.asCompatibleSubstituteFor("apache/kafka"))) {
            check("KafkaContainer", kafka, kafka::getBootstrapServers, CLUSTER_ID);
        }
        try (ConfluentKafkaContainer kafka = new ConfluentKafkaContainer(CONFLUENT_8)) {
            check("ConfluentKafkaContainer", kafka, kafka::getBootstrapServers, CLUSTER_ID);
        }
        checkSettingsAndNetwork();
        checkDeprecatedClass();
    }

    private interface Address {
        String get();
    }

    private static void check(String name, GenericContainer<?> kafka, Address address, String clusterId)
            throws Exception {
        long began = System.nanoTime();
        kafka.start();
        double seconds = (System.nanoTime() - began) / 1e9;
        String bootstrap = address.get();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            String found = admin.describeCluster().clusterId().get();
            expect(clusterId == null || found.equals(clusterId), "cluster id " + found);
        }
        produce(bootstrap, "records");
        List<String> read = consume(bootstrap, "records", RECORDS);
        expect(read.size() == RECORDS && read.get(RECORDS - 1).equals("99"), "read " + read);
        System.out.printf("%s %s: ready after %.2f s, %d records%n", name, kafka.getDockerImageName(), seconds, RECORDS);
    }

    /** Variables of the test override those of the image, and a second listener serves other containers. */
    private static void checkSettingsAndNetwork() throws Exception {
        try (Network network = Network.newNetwork();
                KafkaContainer kafka = new KafkaContainer(APACHE).withNetwork(network).withListener("kafka:19092")
                        .withEnv("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false").withEnv("CLUSTER_ID", "abcdefghijklmnopqrstuv");
                GenericContainer<?> client = new GenericContainer<>(APACHE).withNetwork(network)
                        .withCommand("sleep", "infinity")) {
            kafka.start();
            client.start();
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", kafka.getBootstrapServers()))) {
                expect(admin.describeCluster().clusterId().get().equals("abcdefghijklmnopqrstuv"), "the cluster id");
            }
            String tools = "kafka-topics.sh --bootstrap-server kafka:19092 --create --topic records && "
                    + "printf 'one\\ntwo\\n' | kafka-console-producer.sh --bootstrap-server kafka:19092 --topic records";
            Container.ExecResult result = client.execInContainer("sh", "-c", tools);
            expect(result.getExitCode() == 0, result.getStdout() + result.getStderr());
            List<String> read = consume(kafka.getBootstrapServers(), "records", 2);
            expect(read.equals(List.of("one", "two")), "read " + read);
            try {
                produce(kafka.getBootstrapServers(), "missing");
                throw new AssertionError("the topic missing was created");
            } catch (ExecutionException expected) {
                System.out.println("KafkaContainer with a network, a listener and variables: 2 records");
            }
        }
    }

    @SuppressWarnings("deprecation")
    private static void checkDeprecatedClass() throws Exception {
        for (String image : List.of(CONFLUENT_7, CONFLUENT_8)) {
            DockerImageName name = DockerImageName.parse(image);
            try (var kafka = new org.testcontainers.containers.KafkaContainer(name)) {
                check("deprecated KafkaContainer, ZooKeeper", kafka, kafka::getBootstrapServers, null);
            }
            try (var kafka = new org.testcontainers.containers.KafkaContainer(name).withKraft().withClusterId(CLUSTER_ID)) {
                check("deprecated KafkaContainer, KRaft", kafka, kafka::getBootstrapServers, CLUSTER_ID);
            }
        }
    }

    private static void produce(String bootstrap, String topic) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "max.block.ms", 3_000);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(number))).get();
            }
        }
    }

    /** Reads the topic as a group until it has so many records, or until the time is over. */
    private static List<String> consume(String bootstrap, String topic, int records) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "group.id", "readers", "auto.offset.reset", "earliest");
        List<String> read = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            while (read.size() < records && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> read.add(record.value()));
            }
        }
        return read;
    }

    private static void expect(boolean holds, String message) {
        if (!holds) {
            throw new AssertionError(message);
        }
    }
}
