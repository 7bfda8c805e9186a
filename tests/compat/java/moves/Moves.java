import static futures.Futures.fails;
import static futures.Futures.get;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.errors.ResourceNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Moves a partition from one log directory to the other and back, and asks for what a plain broker has none of. */
public final class Moves {
    private static final String TOPIC = "moving";
    private static final int RECORDS = 2000;

    private final Admin admin;
    private final String bootstrap;

    private Moves(String bootstrap) {
        this.bootstrap = bootstrap;
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        admin = Admin.create(config);
    }

    public static void main(String[] args) throws Exception {
        Moves moves = new Moves(args[0]);
        get(moves.admin.createTopics(Collections.singleton(new NewTopic(TOPIC, 1, (short) 1))).all());
        moves.produce();
        Report.feature("move", () -> moves.move(args[1]));
        Report.feature("move on", () -> moves.move(args[2]));
        Report.feature("move back", () -> moves.move(args[1]));
        Report.feature("no such directory", moves::nowhere);
        Report.feature("quotas", moves::quotas);
        Report.feature("credentials", moves::credentials);
        Report.feature("access lists", moves::accessLists);
        Report.feature("transactions", moves::transactions);
        moves.admin.close();
    }

    private void produce() throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int n = 0; n < RECORDS; n++) {
                producer.send(new ProducerRecord<>(TOPIC, ("value " + n).getBytes(StandardCharsets.UTF_8)));
            }
        }
    }

    private TopicPartitionReplica replica() throws Exception {
        int id = get(admin.describeCluster().controller()).id();
        return new TopicPartitionReplica(TOPIC, 0, id);
    }

    private void move(String directory) throws Exception {
        TopicPartitionReplica replica = replica();
        get(admin.alterReplicaLogDirs(Collections.singletonMap(replica, directory)).all());
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            var info = get(admin.describeReplicaLogDirs(Collections.singleton(replica)).all()).get(replica);
            if (directory.equals(info.getCurrentReplicaLogDir())) {
                Report.equal(null, info.getFutureReplicaLogDir());
                break;
            }
            Report.equal(true, System.nanoTime() < deadline);
            Thread.sleep(20);
        }
        var sizes = get(admin.describeLogDirs(Collections.singleton(replica.brokerId())).allDescriptions());
        var here = sizes.get(replica.brokerId()).get(directory).replicaInfos();
        Report.equal(false, here.get(new TopicPartition(TOPIC, 0)).isFuture());
        produce();
    }

    private void nowhere() throws Exception {
        fails(LogDirNotFoundException.class,
            admin.alterReplicaLogDirs(Collections.singletonMap(replica(), "/no/such/directory")).all());
    }

    private void quotas() throws Exception {
        Report.equal(Map.of(), get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
        var ofUsers = ClientQuotaFilter.containsOnly(Collections.singleton(ClientQuotaFilterComponent.ofEntityType("user")));
        Report.equal(Map.of(), get(admin.describeClientQuotas(ofUsers).entities()));
    }

    private void credentials() throws Exception {
        Report.equal(Map.of(), get(admin.describeUserScramCredentials().all()));
        fails(ResourceNotFoundException.class,
            admin.describeUserScramCredentials(Collections.singletonList("nobody")).description("nobody"));
    }

    private void accessLists() throws Exception {
        fails(SecurityDisabledException.class, admin.describeAcls(AclBindingFilter.ANY).values());
        fails(SecurityDisabledException.class,
            admin.deleteAcls(Collections.singleton(AclBindingFilter.ANY)).all());
    }

    private void transactions() throws Exception {
        Report.equal(true, get(admin.listTransactions().all()).isEmpty());
    }
}
