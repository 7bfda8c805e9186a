import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.MemberAssignmentImpl;

/**
 * What Apache Kafka's own assignors make of a group. A line of input is `ASSIGNOR COUNTS MEMBER...`: counts are
 * `topic:partitions,...`, a member is `id;instance id;topic,...;topic:partition,...` (what it has). The line of output
 * is `id;topic:partition,...` of each member, in the order of ids. Topics are numbers.
 */
public final class SimpleAssignorOracle implements GroupSpec, SubscribedTopicDescriber {
    private record Member(Optional<String> instanceId, Set<Uuid> subscribedTopicIds) implements MemberSubscription {
        @Override
        public Optional<String> rackId() {
            return Optional.empty();
        }
    }

    private final Map<Uuid, Integer> counts = new HashMap<>();
    private final Map<String, Member> members = new LinkedHashMap<>();
    private final Map<String, MemberAssignment> assignments = new HashMap<>();
    private final Set<String> assigned = new HashSet<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(new SimpleAssignorOracle(line.split(" ")).answer(line)).append('\n');
        }
        System.out.print(out);
    }

    private SimpleAssignorOracle(String[] words) {
        for (String count : words[1].split(",")) {
            String[] parts = count.split(":");
            counts.put(topic(parts[0]), Integer.parseInt(parts[1]));
        }
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split(";", -1);
            Set<Uuid> topics = new HashSet<>();
            for (String each : parts[2].isEmpty() ? new String[0] : parts[2].split(",")) {
                topics.add(topic(each));
            }
            Map<Uuid, Set<Integer>> has = new HashMap<>();
            for (String each : parts[3].isEmpty() ? new String[0] : parts[3].split(",")) {
                String[] place = each.split(":");
                has.computeIfAbsent(topic(place[0]), __ -> new HashSet<>()).add(Integer.parseInt(place[1]));
                assigned.add(topic(place[0]) + " " + place[1]);
            }
            members.put(parts[0], new Member(Optional.of(parts[1]).filter(id -> !id.isEmpty()), topics));
            assignments.put(parts[0], new MemberAssignmentImpl(Collections.unmodifiableMap(has)));
        }
    }

    private String answer(String line) {
        SimpleAssignor assignor = new SimpleAssignor();
        TreeMap<String, String> answers = new TreeMap<>();
        assignor.assign(this, this).members().forEach((id, assignment) -> {
            TreeSet<String> places = new TreeSet<>();
            assignment.partitions().forEach((topic, partitions) ->
                partitions.forEach(each -> places.add(topic.getLeastSignificantBits() + ":" + each)));
            answers.put(id, id + ";" + String.join(",", places));
        });
        return String.join(" ", answers.values());
    }

    private static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    @Override
    public Collection<String> memberIds() {
        return members.keySet();
    }

    @Override
    public SubscriptionType subscriptionType() {
        long different = members.values().stream().map(Member::subscribedTopicIds).distinct().count();
        return different <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
    }

    @Override
    public boolean isPartitionAssigned(Uuid topic, int partition) {
        return assigned.contains(topic + " " + partition);
    }

    @Override
    public boolean isPartitionAssignable(Uuid topic, int partition) {
        return true;
    }

    @Override
    public MemberSubscription memberSubscription(String id) {
        return members.get(id);
    }

    @Override
    public MemberAssignment memberAssignment(String id) {
        return assignments.get(id);
    }

    @Override
    public int numPartitions(Uuid topic) {
        return counts.getOrDefault(topic, -1);
    }

    @Override
    public Set<String> racksForPartition(Uuid topic, int partition) {
        return Set.of();
    }
}
