import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group with explicit acknowledgements, which executes the commands on its input.
 * Arguments: bootstrap, group, topic, further settings as name=value. Each command has one line of output.
 */
public final class ShareMember {
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final Map<String, ConsumerRecord<byte[], byte[]>> held = new TreeMap<>();

    private ShareMember(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("share.acknowledgement.mode", "explicit");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 3; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            config.put(setting[0], setting[1]);
        }
        consumer = new KafkaShareConsumer<>(config);
        consumer.subscribe(Collections.singleton(args[2]));
    }

    public static void main(String[] args) throws IOException {
        ShareMember member = new ShareMember(args);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = member.execute(line.split(" "));
            } catch (RuntimeException error) {
                answer = "failed " + error.getClass().getSimpleName() + " " + error.getMessage();
            }
            System.out.println(answer);
            System.out.flush();
        }
        member.consumer.close();
    }

    private String execute(String[] command) {
        switch (command[0]) {
            case "poll":
                return poll(Long.parseLong(command[1]));
            case "ack":
                AcknowledgeType type = AcknowledgeType.valueOf(command[1]);
                for (int i = 2; i < command.length; i++) {
                    ConsumerRecord<byte[], byte[]> record = held.get(command[i]);
                    consumer.acknowledge(record, type);
                    if (type != AcknowledgeType.RENEW) {
                        held.remove(command[i]);
                    }
                }
                return "acknowledged";
            case "commit":
                return commit();
            case "close":
                consumer.close();
                return "closed";
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private String poll(long milliseconds) {
        long end = System.currentTimeMillis() + milliseconds;
        StringBuilder line = new StringBuilder("got");
        while (true) {
            int count = 0;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                String place = record.partition() + ":" + record.offset();
                held.put(place, record);
                line.append(' ').append(place).append('=').append(record.deliveryCount().orElse((short) -1));
                count++;
            }
            if (count > 0 || System.currentTimeMillis() > end) {
                return line.toString();
            }
        }
    }

    private String commit() {
        StringBuilder line = new StringBuilder("committed");
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> result : consumer.commitSync().entrySet()) {
            String outcome = result.getValue().map(error -> error.getClass().getSimpleName()).orElse("ok");
            line.append(' ').append(result.getKey().partition()).append('=').append(outcome);
        }
        return line.toString();
    }
}
