import static futures.Futures.fails;
import static futures.Futures.get;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.DelegationTokenDisabledException;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.UnsupportedByAuthenticationException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Every question that the screens of kafka-ui, AKHQ, Kafdrop, Redpanda Console and others ask through AdminClient. */
public final class Screens {
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 30;
    private static final long START_MS = System.currentTimeMillis() - 1_000_000;

    private final String bootstrap;
    private final Admin admin;
    private final String topic = "screens-" + UUID.randomUUID().toString().substring(0, 8);
    private final String group = "group-of-" + topic;

    private Screens(String bootstrap) {
        this.bootstrap = bootstrap;
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(config);
    }

    public static void main(String[] args) throws Exception {
        Screens screens = new Screens(args[0]);
        Report.feature("create topics", screens::createTopics);
        screens.fill();
        Report.feature("cluster", screens::cluster);
        Report.feature("features", screens::features);
        Report.feature("topics", screens::topics);
        Report.feature("settings", screens::settings);
        Report.feature("change settings", screens::changeSettings);
        Report.feature("offsets", screens::offsets);
        Report.feature("delete records", screens::deleteRecords);
        try (KafkaConsumer<byte[], byte[]> member = screens.member()) {
            Report.feature("groups", screens::groups);
            Report.feature("offsets of groups", screens::offsetsOfGroups);
            Newer.check(screens.admin, screens.topic, screens.group);
        }
        Report.feature("change groups", screens::changeGroups);
        Report.feature("log directories", screens::logDirectories);
        Report.feature("producers", screens::producers);
        Report.feature("reassignments", screens::reassignments);
        Report.feature("elections", screens::elections);
        Report.feature("what is not there", screens::refusals);
        Report.feature("metrics", screens::metrics);
        Report.feature("delete topics", screens::deleteTopics);
        screens.admin.close();
    }

    private TopicPartition place(int partition) {
        return new TopicPartition(topic, partition);
    }

    private List<TopicPartition> places() {
        return Arrays.asList(place(0), place(1), place(2));
    }

    private void fill() throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int n = 0; n < RECORDS; n++) {
                byte[] value = ("value " + n).getBytes(StandardCharsets.UTF_8);
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, START_MS + n * 1000L, null, value));
                }
            }
            producer.flush();
        }
    }

    private KafkaConsumer<byte[], byte[]> member() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("client.id", "screens-member");
        config.put("group.instance.id", "instance-1");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(Collections.singleton(topic));
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(100));
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        places().forEach(each -> offsets.put(each, new OffsetAndMetadata(10, "ten")));
        consumer.commitSync(offsets);
        return consumer;
    }

    private void createTopics() throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty())
            .configs(Collections.singletonMap("retention.ms", "99999999999"));
        var created = admin.createTopics(Collections.singleton(wanted));
        Report.equal(2, get(created.numPartitions(topic)));
        Report.equal(1, get(created.replicationFactor(topic)));
        Report.equal("99999999999", get(created.config(topic)).get("retention.ms").value());
        get(admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(PARTITIONS))).all());
    }

    private void cluster() throws Exception {
        DescribeClusterResult cluster =
            admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        Collection<Node> nodes = get(cluster.nodes());
        Report.equal(1, nodes.size());
        Report.equal(true, nodes.contains(get(cluster.controller())));
        Report.equal(22, get(cluster.clusterId()).length());
        Report.equal(true, get(cluster.authorizedOperations()).contains(AclOperation.ALTER_CONFIGS));
    }

    private void features() throws Exception {
        get(admin.describeFeatures().featureMetadata()).finalizedFeatures().forEach((name, range) ->
            Report.equal(true, range.maxVersionLevel() >= range.minVersionLevel()));
    }

    private void topics() throws Exception {
        Map<String, TopicListing> listed = get(admin.listTopics(new ListTopicsOptions().listInternal(true)).namesToListings());
        Uuid id = listed.get(topic).topicId();
        Report.equal(false, id.equals(Uuid.ZERO_UUID));
        Report.equal(true, get(admin.listTopics().names()).stream().noneMatch(each -> each.startsWith("__")));
        DescribeTopicsOptions options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        TopicDescription byName = get(admin.describeTopics(Collections.singleton(topic), options).allTopicNames()).get(topic);
        Report.equal(PARTITIONS, byName.partitions().size());
        byName.partitions().forEach(each -> Report.equal(each.replicas(), each.isr()));
        Report.equal(true, byName.authorizedOperations().contains(AclOperation.DELETE));
        TopicCollection ids = TopicCollection.ofTopicIds(Collections.singleton(id));
        Report.equal(topic, get(admin.describeTopics(ids, options).allTopicIds()).get(id).name());
        fails(UnknownTopicOrPartitionException.class,
            admin.describeTopics(Collections.singleton("no-such-topic")).allTopicNames());
    }

    private Map<String, ConfigEntry> describe(ConfigResource resource) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config config = get(admin.describeConfigs(Collections.singleton(resource), options).all()).get(resource);
        return config.entries().stream().collect(Collectors.toMap(ConfigEntry::name, each -> each));
    }

    private void settings() throws Exception {
        Map<String, ConfigEntry> ofTopic = describe(new ConfigResource(ConfigResource.Type.TOPIC, topic));
        ConfigEntry retention = ofTopic.get("retention.ms");
        Report.equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, retention.source());
        Report.equal(ConfigEntry.ConfigType.LONG, retention.type());
        Report.equal(true, retention.documentation().length() > 20);
        ConfigEntry policy = ofTopic.get("cleanup.policy");
        Report.equal(true, policy.isDefault());
        Report.equal("log.cleanup.policy", policy.synonyms().get(policy.synonyms().size() - 1).name());
        String id = get(admin.describeCluster().controller()).idString();
        Map<String, ConfigEntry> ofBroker = describe(new ConfigResource(ConfigResource.Type.BROKER, id));
        Report.equal(true, ofBroker.size() > 150);
        Report.equal(true, ofBroker.get("log.dirs").isReadOnly());
        Report.equal(ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, ofBroker.get("log.dirs").source());
        ofBroker.values().forEach(each -> Report.equal(true, each.documentation() != null));
        Map<String, ConfigEntry> loggers = describe(new ConfigResource(ConfigResource.Type.BROKER_LOGGER, id));
        Report.equal(true, !loggers.isEmpty());
        describe(new ConfigResource(ConfigResource.Type.BROKER, ""));
    }

    private void changeSettings() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        change(resource, new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
        Report.equal("delete,compact", describe(resource).get("cleanup.policy").value());
        change(resource, new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.SUBTRACT);
        Report.equal("delete", describe(resource).get("cleanup.policy").value());
        change(resource, new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE);
        Report.equal(true, describe(resource).get("cleanup.policy").isDefault());
    }

    private void change(ConfigResource resource, ConfigEntry entry, AlterConfigOp.OpType how) throws Exception {
        Collection<AlterConfigOp> changes = Collections.singleton(new AlterConfigOp(entry, how));
        get(admin.incrementalAlterConfigs(Collections.singletonMap(resource, changes)).all());
    }

    private long offset(OffsetSpec spec) throws Exception {
        Map<TopicPartition, ListOffsetsResultInfo> found =
            get(admin.listOffsets(Collections.singletonMap(place(0), spec)).all());
        return found.get(place(0)).offset();
    }

    private void offsets() throws Exception {
        Report.equal(0L, offset(OffsetSpec.earliest()));
        Report.equal((long) RECORDS, offset(OffsetSpec.latest()));
        Report.equal(RECORDS - 1L, offset(OffsetSpec.maxTimestamp()));
        Report.equal(5L, offset(OffsetSpec.forTimestamp(START_MS + 4500)));
        Report.equal(-1L, offset(OffsetSpec.forTimestamp(START_MS * 2)));
        Report.equal(0L, offset(OffsetSpec.earliestLocal()));
    }

    private void deleteRecords() throws Exception {
        Map<TopicPartition, RecordsToDelete> asked = Collections.singletonMap(place(0), RecordsToDelete.beforeOffset(3));
        Report.equal(3L, get(admin.deleteRecords(asked).lowWatermarks().get(place(0))).lowWatermark());
        Report.equal(3L, offset(OffsetSpec.earliest()));
    }

    private void groups() throws Exception {
        Collection<ConsumerGroupListing> listed = get(admin.listConsumerGroups().all());
        Report.equal(1L, listed.stream().filter(each -> each.groupId().equals(group)).count());
        DescribeConsumerGroupsOptions options = new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true);
        ConsumerGroupDescription described =
            get(admin.describeConsumerGroups(Collections.singleton(group), options).all()).get(group);
        Report.equal("range", described.partitionAssignor());
        Report.equal(false, described.isSimpleConsumerGroup());
        Report.equal(true, described.coordinator().port() > 0);
        Report.equal(true, described.authorizedOperations().contains(AclOperation.READ));
        MemberDescription member = described.members().iterator().next();
        Report.equal("screens-member", member.clientId());
        Report.equal("instance-1", member.groupInstanceId().get());
        Report.equal(new HashSet<>(places()), member.assignment().topicPartitions());
    }

    private void offsetsOfGroups() throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
            get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        Report.equal(new HashSet<>(places()), offsets.keySet());
        offsets.values().forEach(each -> Report.equal("10 ten", each.offset() + " " + each.metadata()));
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        asked.put(group, new ListConsumerGroupOffsetsSpec().topicPartitions(Collections.singleton(place(1))));
        asked.put("no-such-group", new ListConsumerGroupOffsetsSpec());
        var several = get(admin.listConsumerGroupOffsets(asked).all());
        Report.equal(1, several.get(group).size());
        Report.equal(0, several.get("no-such-group").size());
    }

    private void changeGroups() throws Exception {
        RemoveMembersFromConsumerGroupOptions gone =
            new RemoveMembersFromConsumerGroupOptions(Collections.singleton(new MemberToRemove("instance-1")));
        get(admin.removeMembersFromConsumerGroup(group, gone).all());
        get(admin.alterConsumerGroupOffsets(group, Collections.singletonMap(place(0), new OffsetAndMetadata(5))).all());
        Report.equal(5L, get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(place(0)).offset());
        get(admin.deleteConsumerGroupOffsets(group, Collections.singleton(place(0))).all());
        Report.equal(2, get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).size());
        get(admin.deleteConsumerGroups(Collections.singleton(group)).all());
        fails(GroupIdNotFoundException.class, admin.deleteConsumerGroups(Collections.singleton(group)).all());
    }

    private void logDirectories() throws Exception {
        int id = get(admin.describeCluster().controller()).id();
        Map<String, LogDirDescription> directories = get(admin.describeLogDirs(Collections.singleton(id)).allDescriptions()).get(id);
        LogDirDescription one = directories.values().stream()
            .filter(each -> each.replicaInfos().containsKey(place(0))).findFirst().get();
        Report.equal(true, one.replicaInfos().get(place(0)).size() > 0);
        Report.equal(0L, one.replicaInfos().get(place(0)).offsetLag());
        Report.equal(true, one.totalBytes().getAsLong() > one.usableBytes().getAsLong());
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, id);
        var where = get(admin.describeReplicaLogDirs(Collections.singleton(replica)).all()).get(replica);
        Report.equal(true, directories.containsKey(where.getCurrentReplicaLogDir()));
    }

    private void producers() throws Exception {
        var states = get(admin.describeProducers(Collections.singleton(place(0))).all()).get(place(0)).activeProducers();
        Report.equal(1, states.size());
        Report.equal(RECORDS - 1, states.get(0).lastSequence());
    }

    private void reassignments() throws Exception {
        Report.equal(0, get(admin.listPartitionReassignments().reassignments()).size());
        int id = get(admin.describeCluster().controller()).id();
        var wanted = Optional.of(new NewPartitionReassignment(Collections.singletonList(id)));
        get(admin.alterPartitionReassignments(Collections.singletonMap(place(0), wanted)).all());
    }

    private void elections() throws Exception {
        refused(ElectionNotNeededException.class,
            get(admin.electLeaders(ElectionType.PREFERRED, Collections.singleton(place(0))).partitions()).get(place(0)));
    }

    /** Screens hide what a broker says it does not have; they do not survive one that says nothing. */
    private void refusals() throws Exception {
        List<String> served = new ArrayList<>();
        check("access lists", admin.describeAcls(AclBindingFilter.ANY).values(), served);
        check("credentials", admin.describeUserScramCredentials().all(), served);
        check("quorum", admin.describeMetadataQuorum().quorumInfo(), served);
        check("transactions", admin.listTransactions().all(), served);
        check("quotas", admin.describeClientQuotas(ClientQuotaFilter.all()).entities(), served);
        check("tokens", admin.describeDelegationToken().delegationTokens(), served);
        System.out.println("# served: " + served);
        Set<String> nobody = Collections.singleton("no-such-transaction");
        fails(TransactionalIdNotFoundException.class, admin.describeTransactions(nobody).all());
        String fenced = "transactions-of-" + topic;
        get(admin.fenceProducers(Collections.singleton(fenced)).all());
        Report.equal(fenced, get(admin.describeTransactions(Collections.singleton(fenced)).all()).keySet().iterator().next());
    }

    private static void check(String name, KafkaFuture<?> future, List<String> served) throws Exception {
        try {
            get(future);
            served.add(name);
        } catch (ExecutionException error) {
            Set<Class<?>> proper = Set.of(UnsupportedVersionException.class,
                SecurityDisabledException.class, DelegationTokenDisabledException.class,
                UnsupportedByAuthenticationException.class);
            if (!proper.contains(error.getCause().getClass())) {
                throw error;
            }
        }
    }

    private static void refused(Class<?> expected, Optional<Throwable> outcome) {
        Report.equal(expected, outcome.get().getClass());
    }

    private void metrics() {
        Report.equal(true, admin.metrics().size() > 20);
    }

    private void deleteTopics() throws Exception {
        Uuid id = get(admin.listTopics().namesToListings()).get(topic).topicId();
        get(admin.deleteTopics(TopicCollection.ofTopicIds(Collections.singleton(id))).all());
        Report.equal(false, get(admin.listTopics().names()).contains(topic));
    }
}
