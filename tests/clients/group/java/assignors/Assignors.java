import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/** Runs Kafka's assignors on cases from standard input, one a line, and prints who is given what.
 *
 * A case: name;topic=racks,...;member|instance|topic,...|topic-partition ...|generation|user data in hex|rack;...
 * Racks of a topic: for each of its partitions those of its replicas, as in `ab/b//c`, each a letter.
 * An answer: member=topic-partition ...;... and after it a space, a bar and what the first member would tell in its
 * user data after that assignment. */
public class Assignors {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(answer(lines.nextLine().split(";", -1)));
        }
    }

    static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static String answer(String[] parts) {
        Node node = new Node(1, "localhost", 9092);
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : split(parts[1], ",")) {
            String[] both = topic.split("=", -1);
            String[] racks = both[1].split("/", -1);
            for (int index = 0; index < racks.length; index++) {
                Node[] replicas = racks[index].chars()
                    .mapToObj(rack -> new Node(rack, "localhost", 9092, String.valueOf((char) rack))).toArray(Node[]::new);
                partitions.add(new PartitionInfo(both[0], index, node, replicas, replicas));
            }
        }
        Cluster cluster = new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
        Map<String, Subscription> members = new HashMap<>();
        for (int number = 2; number < parts.length; number++) {
            String[] member = parts[number].split("\\|", -1);
            ByteBuffer data = member[5].isEmpty() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(member[5]));
            Subscription subscription = new Subscription(
                split(member[2], ","), data, places(member[3]), Integer.parseInt(member[4]),
                member[6].isEmpty() ? Optional.empty() : Optional.of(member[6]));
            if (!member[1].isEmpty()) {
                subscription.setGroupInstanceId(Optional.of(member[1]));
            }
            members.put(member[0], subscription);
        }
        Map<String, Assignment> given =
            assignor(parts[0]).assign(cluster, new GroupSubscription(members)).groupAssignment();
        StringJoiner answer = new StringJoiner(";");
        String first = null;
        for (String member : new TreeSet<>(given.keySet())) {
            StringJoiner places = new StringJoiner(" ");
            given.get(member).partitions().forEach(place -> places.add(place.toString()));
            answer.add(member + "=" + places);
            first = first == null ? member : first;
        }
        ConsumerPartitionAssignor remembering = assignor(parts[0]);
        remembering.onAssignment(given.get(first), new ConsumerGroupMetadata("g", 7, first, Optional.empty()));
        ByteBuffer told = remembering.subscriptionUserData(Set.of("t0"));
        String hex = "";
        if (told != null) {
            byte[] bytes = new byte[told.remaining()];
            told.duplicate().get(bytes);
            hex = HexFormat.of().formatHex(bytes);
        }
        return answer + " |" + hex;
    }

    static List<String> split(String text, String separator) {
        return text.isEmpty() ? List.of() : List.of(text.split(separator));
    }

    static List<TopicPartition> places(String text) {
        List<TopicPartition> places = new ArrayList<>();
        for (String place : split(text, " ")) {
            int dash = place.lastIndexOf('-');
            places.add(new TopicPartition(place.substring(0, dash), Integer.parseInt(place.substring(dash + 1))));
        }
        return places;
    }
}
