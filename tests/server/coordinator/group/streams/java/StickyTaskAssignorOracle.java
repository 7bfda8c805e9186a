import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.api.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * The assignments of Apache Kafka's StickyTaskAssignor. A line of input is `STANDBYS SUBTOPOLOGIES MEMBER...`:
 * subtopologies are `id:tasks:stateful,...`, a member is `id;process;active;standby;offsets` with tasks `id_partition,...`
 * and offsets `id_partition_offset,...`. The line of output has `id;active;standby` for each member.
 */
public final class StickyTaskAssignorOracle implements TopologyDescriber {
    private final Map<String, Integer> tasks = new LinkedHashMap<>();
    private final Set<String> stateful = new HashSet<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(new StickyTaskAssignorOracle().answer(line.split(" "))).append('\n');
        }
        System.out.print(out);
    }

    private static String[] list(String text) {
        return text.isEmpty() ? new String[0] : text.split(",");
    }

    private static Map<String, Set<Integer>> parseTasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String task : list(text)) {
            String[] parts = task.split("_");
            found.computeIfAbsent(parts[0], __ -> new HashSet<>()).add(Integer.parseInt(parts[1]));
        }
        return found;
    }

    private static Map<String, Map<Integer, Long>> parseOffsets(String text) {
        Map<String, Map<Integer, Long>> found = new HashMap<>();
        for (String offset : list(text)) {
            String[] parts = offset.split("_");
            found.computeIfAbsent(parts[0], __ -> new HashMap<>())
                .put(Integer.parseInt(parts[1]), Long.parseLong(parts[2]));
        }
        return found;
    }

    private static String format(Map<String, Set<Integer>> assigned) {
        TreeSet<String> names = new TreeSet<>();
        assigned.forEach((id, partitions) -> partitions.forEach(each -> names.add(id + "_" + each)));
        return String.join(",", names);
    }

    private String answer(String[] words) {
        for (String subtopology : list(words[1])) {
            String[] parts = subtopology.split(":");
            tasks.put(parts[0], Integer.parseInt(parts[1]));
            if (parts[2].equals("1")) {
                stateful.add(parts[0]);
            }
        }
        Map<String, MemberMetadataAndStateImpl> members = new LinkedHashMap<>();
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split(";", -1);
            members.put(parts[0], new MemberMetadataAndStateImpl(Optional.empty(), Optional.empty(), parts[1], Map.of(),
                parseTasks(parts[2]), parseTasks(parts[3]), Map.of(), parseOffsets(parts[4]), Map.of()));
        }
        AssignmentConfigsImpl configs = new AssignmentConfigsImpl(Integer.parseInt(words[0]), List.of());
        GroupAssignment assignment = new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), this);
        List<String> answers = new ArrayList<>();
        for (String id : members.keySet()) {
            MemberAssignment member = assignment.members().get(id);
            answers.add(id + ";" + format(member.activeTasks()) + ";" + format(member.standbyTasks()));
        }
        return String.join(" ", answers);
    }

    @Override
    public List<String> subtopologies() {
        return List.copyOf(tasks.keySet());
    }

    @Override
    public int maxNumInputPartitions(String subtopologyId) {
        return tasks.get(subtopologyId);
    }

    @Override
    public boolean isStateful(String subtopologyId) {
        return stateful.contains(subtopologyId);
    }
}
