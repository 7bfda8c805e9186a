import static futures.Futures.fails;
import static futures.Futures.get;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sets, describes and removes quotas of every kind of entity, is refused what Kafka refuses, and is kept to them. */
public final class Quotas {
    private static final ClientQuotaEntity USER = entity("user", "anna");
    private static final ClientQuotaEntity ANY_USER = entity("user", null);
    private static final ClientQuotaEntity CLIENT = entity("client-id", "an app~");
    private static final ClientQuotaEntity BOTH = entity("user", "anna", "client-id", null);
    private static final ClientQuotaEntity HOST = entity("ip", "10.1.2.3");

    private final Admin admin;
    private final String bootstrap;

    private Quotas(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = admin("setter");
    }

    private Admin admin(String clientId) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", clientId);
        return Admin.create(config);
    }

    public static void main(String[] args) throws Exception {
        Quotas quotas = new Quotas(args[0]);
        Report.feature("set", quotas::set);
        Report.feature("describe some", quotas::describeSome);
        Report.feature("refused", quotas::refused);
        Report.feature("only checked", quotas::onlyChecked);
        Report.feature("remove", quotas::remove);
        Report.feature("producer waits", quotas::producerWaits);
        Report.feature("topics are refused", quotas::topicsAreRefused);
        Report.feature("topics are retried", quotas::topicsAreRetried);
        quotas.admin.close();
    }

    private static ClientQuotaEntity entity(String... parts) {
        Map<String, String> entries = new HashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            entries.put(parts[i], parts[i + 1]);
        }
        return new ClientQuotaEntity(entries);
    }

    private static ClientQuotaAlteration change(ClientQuotaEntity entity, String key, Double value) {
        return new ClientQuotaAlteration(entity, Collections.singleton(new ClientQuotaAlteration.Op(key, value)));
    }

    private void alter(ClientQuotaAlteration... changes) throws Exception {
        get(admin.alterClientQuotas(Arrays.asList(changes)).all());
    }

    private Map<ClientQuotaEntity, Map<String, Double>> all() throws Exception {
        return get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
    }

    private void set() throws Exception {
        alter(change(USER, "producer_byte_rate", 1e6), change(ANY_USER, "request_percentage", 750.5),
            change(CLIENT, "consumer_byte_rate", 2e6), change(BOTH, "controller_mutation_rate", 12.5),
            change(HOST, "connection_creation_rate", 50.0));
        alter(change(USER, "consumer_byte_rate", 3e6));
        Map<ClientQuotaEntity, Map<String, Double>> expected = new HashMap<>();
        expected.put(USER, Map.of("producer_byte_rate", 1e6, "consumer_byte_rate", 3e6));
        expected.put(ANY_USER, Map.of("request_percentage", 750.5));
        expected.put(CLIENT, Map.of("consumer_byte_rate", 2e6));
        expected.put(BOTH, Map.of("controller_mutation_rate", 12.5));
        expected.put(HOST, Map.of("connection_creation_rate", 50.0));
        Report.equal(expected, all());
    }

    private void describeSome() throws Exception {
        var anna = ClientQuotaFilter.contains(
            Collections.singleton(ClientQuotaFilterComponent.ofEntity("user", "anna")));
        Report.equal(2, get(admin.describeClientQuotas(anna).entities()).size());
        var annaOnly = ClientQuotaFilter.containsOnly(
            Collections.singleton(ClientQuotaFilterComponent.ofEntity("user", "anna")));
        Report.equal(Collections.singleton(USER), get(admin.describeClientQuotas(annaOnly).entities()).keySet());
        var hosts = ClientQuotaFilter.contains(Collections.singleton(ClientQuotaFilterComponent.ofEntityType("ip")));
        Report.equal(Collections.singleton(HOST), get(admin.describeClientQuotas(hosts).entities()).keySet());
    }

    private void refused() throws Exception {
        var before = all();
        for (ClientQuotaAlteration bad : Arrays.asList(
                change(USER, "producer_byte_rate", -1.0), change(USER, "producer_byte_rate", 0.5),
                change(USER, "connection_creation_rate", 1.0), change(HOST, "producer_byte_rate", 1.0),
                change(entity("user", "a", "ip", "10.0.0.1"), "producer_byte_rate", 1.0),
                change(entity("user", ""), "producer_byte_rate", 1.0))) {
            fails(InvalidRequestException.class, admin.alterClientQuotas(Collections.singleton(bad)).all());
        }
        Report.equal(before, all());
    }

    private void onlyChecked() throws Exception {
        var before = all();
        var options = new AlterClientQuotasOptions().validateOnly(true);
        Collection<ClientQuotaAlteration> change = Collections.singleton(change(USER, "producer_byte_rate", 5.0));
        get(admin.alterClientQuotas(change, options).all());
        Report.equal(before, all());
    }

    private void remove() throws Exception {
        alter(change(USER, "producer_byte_rate", null), change(ANY_USER, "request_percentage", null),
            change(CLIENT, "consumer_byte_rate", null), change(BOTH, "controller_mutation_rate", null),
            change(HOST, "connection_creation_rate", null));
        Report.equal(Map.of(USER, Map.of("consumer_byte_rate", 3e6)), all());
        alter(change(USER, "consumer_byte_rate", null));
        Report.equal(Map.of(), all());
    }

    private void producerWaits() throws Exception {
        get(admin.createTopics(Collections.singleton(new NewTopic("waiting", 1, (short) 1))).all());
        ClientQuotaEntity app = entity("client-id", "app");
        alter(change(app, "producer_byte_rate", 50_000.0));
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "app");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        double longest = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int i = 0; i < 25; i++) {
                producer.send(new ProducerRecord<>("waiting", new byte[10_000])).get(30, TimeUnit.SECONDS);
            }
            for (Map.Entry<MetricName, ? extends Metric> metric : producer.metrics().entrySet()) {
                if (metric.getKey().name().equals("produce-throttle-time-max")) {
                    longest = (Double) metric.getValue().metricValue();
                }
            }
        }
        alter(change(app, "producer_byte_rate", null));
        if (longest < 100) {
            throw new AssertionError("the longest wait was " + longest + " ms");
        }
    }

    private static NewTopic topic(String name, int partitions) {
        return new NewTopic(name, partitions, (short) 1);
    }

    private void topicsAreRefused() throws Exception {
        ClientQuotaEntity maker = entity("client-id", "maker");
        alter(change(maker, "controller_mutation_rate", 1.0));
        try (Admin other = admin("maker")) {
            var options = new CreateTopicsOptions().retryOnQuotaViolation(false);
            get(other.createTopics(Collections.singleton(topic("many", 25)), options).all());
            try {
                get(other.createTopics(Collections.singleton(topic("more", 1)), options).all());
            } catch (ExecutionException error) {
                ThrottlingQuotaExceededException cause = (ThrottlingQuotaExceededException) error.getCause();
                if (cause.throttleTimeMs() <= 0) {
                    throw new AssertionError("it has to wait for " + cause.throttleTimeMs());
                }
                return;
            }
        }
        throw new AssertionError("nothing was refused");
    }

    private void topicsAreRetried() throws Exception {
        ClientQuotaEntity maker = entity("client-id", "maker");
        alter(change(maker, "controller_mutation_rate", 10.0));
        try (Admin other = admin("maker")) {
            get(other.createTopics(Collections.singleton(topic("again", 40))).all());
            get(other.createTopics(Collections.singleton(topic("at-last", 1))).all());
        }
        alter(change(maker, "controller_mutation_rate", null));
    }
}
