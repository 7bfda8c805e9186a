import java.io.IOException;
import java.util.Collection;
import java.util.Collections;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group that says on its output what it is assigned, what it reads and when that is committed.
 * Arguments: bootstrap, group, topic, strategy, session timeout in ms. It leaves when its input ends.
 */
public final class Member implements ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final TreeSet<Integer> assigned = new TreeSet<>();
    private boolean hasUncommitted;

    private Member(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (args[3].equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("session.timeout.ms", args[4]);
            config.put("heartbeat.interval.ms", "300");
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + args[3]);
        }
        consumer = new KafkaConsumer<>(config);
        consumer.subscribe(Collections.singleton(args[2]), this);
    }

    public static void main(String[] args) throws IOException {
        Member member = new Member(args);
        while (System.in.available() == 0) {
            member.step();
        }
        member.consumer.close();
    }

    private void step() {
        ConsumerRecords<byte[], byte[]> records = Poll.once(consumer);
        if (!records.isEmpty()) {
            StringBuilder line = new StringBuilder("got");
            for (ConsumerRecord<byte[], byte[]> record : records) {
                line.append(' ').append(record.partition()).append(':').append(record.offset());
            }
            say(line.toString());
            hasUncommitted = true;
        }
        if (hasUncommitted) {
            try {
                commit();
            } catch (RebalanceInProgressException | CommitFailedException error) {
                // The partitions are kept, and committed later, or lost, which is heard of in the next poll.
                say("# " + error);
            }
        }
    }

    private void commit() {
        consumer.commitSync();
        hasUncommitted = false;
        say("done");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            assigned.add(partition.partition());
        }
        say("assigned" + list(assigned));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        say("revoked" + numbers(partitions));
        if (hasUncommitted) {
            try {
                commit();
            } catch (RebalanceInProgressException | CommitFailedException error) {
                say("# " + error);
                lose(partitions);
            }
        }
        remove(partitions);
    }

    /** Since 2.4; before, partitions are revoked however they go. */
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        lose(partitions);
        remove(partitions);
    }

    private void lose(Collection<TopicPartition> partitions) {
        say("lost" + numbers(partitions));
        hasUncommitted = false;
    }

    private void remove(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            assigned.remove(partition.partition());
        }
        say("assigned" + list(assigned));
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = new TreeSet<>();
        for (TopicPartition partition : partitions) {
            numbers.add(partition.partition());
        }
        return list(numbers);
    }

    private static String list(Collection<Integer> numbers) {
        StringBuilder text = new StringBuilder();
        for (int number : numbers) {
            text.append(' ').append(number);
        }
        return text.toString();
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
