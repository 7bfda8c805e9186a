import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.errors.FencedMemberEpochException;
import org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder;
import org.apache.kafka.coordinator.group.streams.MemberState;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;
import org.apache.kafka.coordinator.group.streams.TasksTuple;
import org.apache.kafka.coordinator.group.streams.TasksTupleWithEpochs;

/**
 * The next states of members by Apache Kafka's CurrentAssignmentBuilder of streams groups. A line of input is
 * `STATE EPOCH PROCESS ASSIGNED REVOKING TARGET_EPOCH TARGET OWNED OWNERS`: tasks are `id_partition`, with an epoch
 * `id_partition_epoch`, in lists `active;standby;warmup`; OWNED is `-` without a report; owners are
 * `id_partition_process` in three such lists. The line of output is the state, the epoch and the tasks.
 */
public final class CurrentAssignmentOracle {
    private CurrentAssignmentOracle() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(answer(line.split(" "))).append('\n');
        }
        System.out.print(out);
    }

    private static String[] list(String text) {
        return text.isEmpty() ? new String[0] : text.split(",");
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String task : list(text)) {
            String[] parts = task.split("_");
            found.computeIfAbsent(parts[0], __ -> new HashSet<>()).add(Integer.parseInt(parts[1]));
        }
        return found;
    }

    private static Map<String, Map<Integer, Integer>> tasksWithEpochs(String text) {
        Map<String, Map<Integer, Integer>> found = new HashMap<>();
        for (String task : list(text)) {
            String[] parts = task.split("_");
            found.computeIfAbsent(parts[0], __ -> new HashMap<>())
                .put(Integer.parseInt(parts[1]), Integer.parseInt(parts[2]));
        }
        return found;
    }

    private static TasksTupleWithEpochs assigned(String text) {
        String[] parts = text.split(";", -1);
        return new TasksTupleWithEpochs(tasksWithEpochs(parts[0]), tasks(parts[1]), tasks(parts[2]));
    }

    private static TasksTuple tuple(String text) {
        String[] parts = text.split(";", -1);
        return new TasksTuple(tasks(parts[0]), tasks(parts[1]), tasks(parts[2]));
    }

    private static Set<String> owners(String text, String id, int partition) {
        Set<String> found = new HashSet<>();
        for (String owner : list(text)) {
            String[] parts = owner.split("_");
            if (parts[0].equals(id) && Integer.parseInt(parts[1]) == partition) {
                found.add(parts[2]);
            }
        }
        return found;
    }

    private static String format(TasksTupleWithEpochs tuple) {
        TreeSet<String> active = new TreeSet<>();
        tuple.activeTasksWithEpochs().forEach((id, epochs) ->
            epochs.forEach((partition, epoch) -> active.add(id + "_" + partition + "_" + epoch)));
        return String.join(",", active) + ";" + format(tuple.standbyTasks()) + ";" + format(tuple.warmupTasks());
    }

    private static String format(Map<String, Set<Integer>> tasks) {
        TreeSet<String> names = new TreeSet<>();
        tasks.forEach((id, partitions) -> partitions.forEach(each -> names.add(id + "_" + each)));
        return String.join(",", names);
    }

    private static String answer(String[] words) {
        String[] owners = words[8].split(";", -1);
        StreamsGroupMember member = StreamsGroupMember.Builder.withDefaults("member")
            .setState(MemberState.fromValue((byte) Integer.parseInt(words[0])))
            .setMemberEpoch(Integer.parseInt(words[1]))
            .setPreviousMemberEpoch(Integer.parseInt(words[1]))
            .setProcessId(words[2])
            .setAssignedTasks(assigned(words[3]))
            .setTasksPendingRevocation(assigned(words[4]))
            .build();
        try {
            StreamsGroupMember next = new CurrentAssignmentBuilder(member)
                .withTargetAssignment(Integer.parseInt(words[5]), tuple(words[6]))
                .withOwnedAssignment(words[7].equals("-") ? null : tuple(words[7]))
                .withCurrentActiveTaskProcessId((id, partition) ->
                    owners(owners[0], id, partition).stream().findFirst().orElse(null))
                .withCurrentStandbyTaskProcessIds((id, partition) -> owners(owners[1], id, partition))
                .withCurrentWarmupTaskProcessIds((id, partition) -> owners(owners[2], id, partition))
                .build();
            return next.state().value() + " " + next.memberEpoch() + " " + format(next.assignedTasks()) + " "
                + format(next.tasksPendingRevocation());
        } catch (FencedMemberEpochException error) {
            return "FENCED";
        }
    }
}
