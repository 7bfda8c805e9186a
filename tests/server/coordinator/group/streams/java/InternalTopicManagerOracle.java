import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.StreamsInvalidTopologyException;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.CopartitionGroup;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.Subtopology;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.TopicInfo;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.LoggerFactory;

/**
 * The topologies that Apache Kafka's InternalTopicManager configures. A line of input is `TOPICS SUBTOPOLOGY...`: topics
 * are `name:partitions,...`, a subtopology is `id;sources;repartition sources;sinks;changelogs;copartition groups` with
 * repartition sources `name:partitions,...` and groups `s0.r1,...` of indexes. The line of output has the status, the
 * subtopologies as `id:tasks` with the partitions of their topics, and the topics to create.
 */
public final class InternalTopicManagerOracle implements CoordinatorMetadataImage {
    private record Topic(String name, int partitionCount) implements TopicMetadata {
        @Override
        public Uuid id() {
            return Uuid.ONE_UUID;
        }

        @Override
        public List<String> partitionRacks(int partition) {
            return List.of();
        }
    }

    private final Map<String, Integer> topics = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(new InternalTopicManagerOracle().answer(line.split(" "))).append('\n');
        }
        System.out.print(out);
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }

    private static List<TopicInfo> infos(String text) {
        List<TopicInfo> found = new ArrayList<>();
        for (String topic : list(text)) {
            String[] parts = topic.split(":");
            found.add(new TopicInfo().setName(parts[0]).setPartitions(parts.length > 1 ? Integer.parseInt(parts[1]) : 0)
                .setTopicConfigs(List.of()));
        }
        return found;
    }

    private static CopartitionGroup group(String text) {
        CopartitionGroup group = new CopartitionGroup();
        for (String index : text.split("\\.")) {
            (index.startsWith("s") ? group.sourceTopics() : group.repartitionSourceTopics())
                .add(Short.parseShort(index.substring(1)));
        }
        return group;
    }

    private String answer(String[] words) {
        for (String topic : list(words[0])) {
            topics.put(topic.split(":")[0], Integer.parseInt(topic.split(":")[1]));
        }
        Map<String, Subtopology> subtopologies = new LinkedHashMap<>();
        for (int i = 1; i < words.length; i++) {
            String[] parts = words[i].split(";", -1);
            List<CopartitionGroup> groups = new ArrayList<>();
            list(parts[5]).forEach(each -> groups.add(group(each)));
            subtopologies.put(parts[0], new Subtopology().setSubtopologyId(parts[0]).setSourceTopics(list(parts[1]))
                .setRepartitionSourceTopics(infos(parts[2])).setRepartitionSinkTopics(list(parts[3]))
                .setStateChangelogTopics(infos(parts[4])).setCopartitionGroups(groups));
        }
        try {
            return describe(InternalTopicManager.configureTopics(LoggerFactory.getLogger("oracle"), "group", "member", 0,
                new StreamsTopology(0, subtopologies), this, Time.SYSTEM));
        } catch (StreamsInvalidTopologyException error) {
            return "INVALID";
        }
    }

    private static String describe(ConfiguredTopology topology) {
        StringBuilder text = new StringBuilder();
        text.append(topology.topicConfigurationException().map(error -> error.status().name()).orElse("READY"));
        topology.subtopologies().ifPresent(all -> all.forEach((id, subtopology) -> {
            Map<String, Integer> counts = new TreeMap<>();
            subtopology.repartitionSourceTopics().forEach((name, topic) -> counts.put(name, topic.numberOfPartitions()));
            subtopology.stateChangelogTopics().forEach((name, topic) -> counts.put(name, topic.numberOfPartitions()));
            text.append(' ').append(id).append(':').append(subtopology.numberOfTasks()).append(counts.toString().replace(" ", ""));
        }));
        Map<String, Integer> missing = new TreeMap<>();
        topology.internalTopicsToBeCreated().forEach((name, topic) -> missing.put(name, topic.numPartitions()));
        return text.append(' ').append(missing.toString().replace(" ", "")).toString();
    }

    @Override
    public Optional<TopicMetadata> topicMetadata(String name) {
        return Optional.ofNullable(topics.get(name)).map(count -> new Topic(name, count));
    }

    @Override
    public Optional<TopicMetadata> topicMetadata(Uuid id) {
        return Optional.empty();
    }

    @Override
    public Set<Uuid> topicIds() {
        return Set.of();
    }

    @Override
    public Set<String> topicNames() {
        return topics.keySet();
    }

    @Override
    public CoordinatorMetadataDelta emptyDelta() {
        throw new UnsupportedOperationException();
    }

    @Override
    public long version() {
        return 0;
    }

    @Override
    public boolean isEmpty() {
        return topics.isEmpty();
    }
}
