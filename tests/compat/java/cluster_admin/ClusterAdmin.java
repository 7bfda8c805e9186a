import static futures.Futures.fails;
import static futures.Futures.get;

import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What an AdminClient asks of several brokers: who they are, moving and leading partitions, settings of each. */
public final class ClusterAdmin {
    private final Admin admin;
    private final String topic;
    private final TopicPartition first;

    private ClusterAdmin(String bootstrap, String topic) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(config);
        this.topic = topic;
        this.first = new TopicPartition(topic, 0);
    }

    public static void main(String[] args) throws Exception {
        ClusterAdmin tried = new ClusterAdmin(args[0], args[1]);
        Report.feature("describe cluster", tried::describeCluster);
        Report.feature("topics", tried::topics);
        Report.feature("reassign", tried::reassign);
        Report.feature("elect", tried::elect);
        Report.feature("configs of brokers", tried::configs);
        Report.feature("log directories", tried::logDirectories);
        tried.admin.close();
    }

    private void describeCluster() throws Exception {
        var described = admin.describeCluster();
        Report.equal(Set.of(1, 2, 3), get(described.nodes()).stream().map(Node::id).collect(Collectors.toSet()));
        Report.equal(true, Set.of(1, 2, 3).contains(get(described.controller()).id()));
        Report.equal(22, get(described.clusterId()).length());
    }

    private void topics() throws Exception {
        get(admin.createTopics(List.of(new NewTopic(topic, Map.of(0, List.of(1, 2), 1, List.of(2, 3))))).all());
        get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3, List.of(List.of(3, 1))))).all());
        until(() -> {
            var partitions = get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions();
            return partitions.stream().map(one -> ids(one.isr())).collect(Collectors.toList())
                .equals(List.of(Set.of(1, 2), Set.of(2, 3), Set.of(1, 3)));
        });
        fails(InvalidReplicationFactorException.class,
            admin.createTopics(List.of(new NewTopic(topic + "-wide", 1, (short) 4))).all());
    }

    private void reassign() throws Exception {
        fails(NoReassignmentInProgressException.class,
            admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all());
        fails(InvalidReplicaAssignmentException.class, move(List.of(1, 9)));
        fails(InvalidReplicaAssignmentException.class, move(List.of(1, 1)));
        fails(UnknownTopicOrPartitionException.class, admin.alterPartitionReassignments(
            Map.of(new TopicPartition("nothing", 0), Optional.of(new NewPartitionReassignment(List.of(1))))).all());
        get(move(List.of(3, 2)));
        until(() -> get(admin.listPartitionReassignments(Set.of(first)).reassignments()).isEmpty());
        until(() -> described().replicas().stream().map(Node::id).collect(Collectors.toList()).equals(List.of(3, 2)));
        until(() -> ids(described().isr()).equals(Set.of(2, 3)));
        get(move(List.of(1, 2)));
        until(() -> get(admin.listPartitionReassignments().reassignments()).isEmpty());
    }

    private org.apache.kafka.common.KafkaFuture<Void> move(List<Integer> replicas) {
        return admin.alterPartitionReassignments(
            Map.of(first, Optional.of(new NewPartitionReassignment(replicas)))).all();
    }

    private void elect() throws Exception {
        // Who leads after the move back is the first replica or the other one, as both were in sync.
        try {
            get(admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all());
        } catch (ExecutionException error) {
            Report.equal(ElectionNotNeededException.class, error.getCause().getClass());
        }
        until(() -> described().leader() != null && described().leader().id() == 1);
        fails(ElectionNotNeededException.class, admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all());
        fails(ElectionNotNeededException.class, admin.electLeaders(ElectionType.UNCLEAN, Set.of(first)).all());
        TopicPartition nothing = new TopicPartition("nothing", 0);
        var answers = get(admin.electLeaders(ElectionType.PREFERRED, Set.of(first, nothing)).partitions());
        Report.equal(ElectionNotNeededException.class, answers.get(first).get().getClass());
        Report.equal(UnknownTopicOrPartitionException.class, answers.get(nothing).get().getClass());
        var everywhere = get(admin.electLeaders(ElectionType.PREFERRED, null).partitions());
        Report.equal(Map.of(), get(admin.electLeaders(ElectionType.PREFERRED, null).partitions()));
        Report.equal(true, everywhere.values().stream().noneMatch(Optional::isPresent));
    }

    private void configs() throws Exception {
        for (int id = 1; id <= 3; id++) {
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(id));
            set(broker, "log.cleaner.backoff.ms", String.valueOf(15000 + id));
        }
        set(new ConfigResource(ConfigResource.Type.BROKER, ""), "log.retention.ms", "777777777");
        for (int id = 1; id <= 3; id++) {
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(id));
            String own = String.valueOf(15000 + id);
            until(() -> own.equals(value(broker, "log.cleaner.backoff.ms")));
            until(() -> "777777777".equals(value(broker, "log.retention.ms")));
            Report.equal(broker.name(), value(broker, "broker.id"));
        }
    }

    private void set(ConfigResource of, String key, String value) throws Exception {
        AlterConfigOp op = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        Map<ConfigResource, Collection<AlterConfigOp>> change = Collections.singletonMap(of, Arrays.asList(op));
        get(admin.incrementalAlterConfigs(change).all());
    }

    private String value(ConfigResource of, String key) throws Exception {
        return get(admin.describeConfigs(Set.of(of)).all()).get(of).get(key).value();
    }

    private void logDirectories() throws Exception {
        var found = get(admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions());
        for (int id = 1; id <= 3; id++) {
            Set<Integer> here = found.get(id).values().stream().flatMap(dir -> dir.replicaInfos().keySet().stream())
                .filter(one -> one.topic().equals(topic)).map(TopicPartition::partition)
                .collect(Collectors.toCollection(TreeSet::new));
            Report.equal(id == 1 ? Set.of(0, 2) : id == 2 ? Set.of(0, 1) : Set.of(1, 2), here);
        }
    }

    private TopicPartitionInfo described() throws Exception {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().get(0);
    }

    private static Set<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toSet());
    }

    /** A broker that has not heard of a topic yet does not know it. */
    private static void until(Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            try {
                if (holds.call()) {
                    return;
                }
            } catch (ExecutionException error) {
                Report.equal(UnknownTopicOrPartitionException.class, error.getCause().getClass());
            }
            Report.equal(true, System.nanoTime() < deadline);
            Thread.sleep(50);
        }
    }
}
