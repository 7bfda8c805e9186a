// Reads lines "kind json", has Apache Kafka decode each and encode it again, prints one line of JSON for each.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import kafka.zk.BrokerIdZNode;
import kafka.zk.ClusterIdZNode;
import kafka.zk.ConfigEntityChangeNotificationSequenceZNode;
import kafka.zk.ConfigEntityZNode;
import kafka.zk.ControllerZNode;
import kafka.zk.ProducerIdBlockZNode;
import kafka.zk.TopicPartitionStateZNode;
import kafka.zk.TopicZNode;
import org.apache.zookeeper.data.Stat;

public class RewriteZnodes {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int space = line.indexOf(' ');
            byte[] data = line.substring(space + 1).getBytes(StandardCharsets.UTF_8);
            System.out.println(new String(rewrite(line.substring(0, space), data), StandardCharsets.UTF_8));
        }
    }

    private static byte[] rewrite(String kind, byte[] data) {
        switch (kind) {
            case "broker":
                return BrokerIdZNode.encode(BrokerIdZNode.decode(7, data));
            case "topic":
                TopicZNode.TopicIdReplicaAssignment topic = TopicZNode.decode("t", data);
                return TopicZNode.encode(topic.topicId(), topic.assignment());
            case "state":
                return TopicPartitionStateZNode.encode(TopicPartitionStateZNode.decode(data, new Stat()).get());
            case "cluster":
                return ClusterIdZNode.toJson(ClusterIdZNode.fromJson(data));
            case "config":
                return ConfigEntityZNode.encode(ConfigEntityZNode.decode(data));
            case "controller":
                return ControllerZNode.encode((Integer) ControllerZNode.decode(data).get(), 17L, -1);
            case "producer-ids":
                return ProducerIdBlockZNode.generateProducerIdBlockJson(ProducerIdBlockZNode.parseProducerIdBlockData(data));
            case "config-change":
                return ConfigEntityChangeNotificationSequenceZNode.encode(new String(data, StandardCharsets.UTF_8));
            default:
                throw new IllegalArgumentException(kind);
        }
    }
}
