import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words, in Kafka Streams: a repartition topic brings equal words together, a changelog topic keeps the counts.
 * Arguments: bootstrap, application id, input topic, output topic, state directory, processing guarantee, and for the
 * streams protocol of groups (KIP-1071) the word streams. It prints its states and what it restores, and closes when
 * its input ends.
 */
public final class WordCount implements StateRestoreListener {
    private WordCount() {
    }

    public static void main(String[] args) throws IOException {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[1]);
        config.put("state.dir", args[4]);
        config.put("processing.guarantee", args[5]);
        config.put("commit.interval.ms", "200");
        config.put("statestore.cache.max.bytes", "0");
        config.put("repartition.purge.interval.ms", "500");
        if (args.length > 6) {
            config.put("group.protocol", args[6]);
            config.put("num.stream.threads", "2");
        } else {
            config.put("consumer.session.timeout.ms", "6000");
            config.put("consumer.heartbeat.interval.ms", "500");
        }
        config.put("consumer.auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.setStateListener((now, before) -> say("state " + now));
            streams.setGlobalStateRestoreListener(new WordCount());
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                System.exit(1);
                return null;
            });
            streams.start();
            System.in.read();
            streams.close(Duration.ofSeconds(30));
        }
        System.exit(0);
    }

    @Override
    public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
    }

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
    }

    @Override
    public void onRestoreEnd(TopicPartition partition, String store, long count) {
        say("restored " + partition + " " + count);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
