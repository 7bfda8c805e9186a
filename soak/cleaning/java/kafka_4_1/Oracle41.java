import java.io.File;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** The cleaner of Kafka 4.1. */
public final class Oracle41 extends Oracle {
    public static void main(String[] args) throws Exception {
        new Oracle41().run();
    }

    @Override
    String clean(File folder, Map<String, String> settings, Asked asked) throws Exception {
        Still time = new Still(asked.number("now_ms"));
        UnifiedLog log = UnifiedLog.create(folder, new LogConfig(settings), 0, 0, new AtOnce(), new BrokerTopicStats(),
            time, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        try {
            log.updateHighWatermark(asked.number("high_watermark"));
            long known = asked.number("first_dirty_offset");
            LogCleanerManager.OffsetsToClean range = LogCleanerManager.cleanableOffsets(
                log, known < 0 ? Optional.empty() : Optional.of(known), time.milliseconds());
            LogToClean cleanable =
                new LogToClean(log, range.firstDirtyOffset(), range.firstUncleanableDirtyOffset(), false);
            Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(asked.size("memory"), "MD5"), asked.size("io_buffer"),
                asked.size("io_buffer_max"), 0.9, unlimited, time, partition -> { });
            Map.Entry<Long, CleanerStats> result = cleaner.clean(cleanable);
            CleanerStats stats = result.getValue();
            return String.format("first_dirty_offset=%d\tfirst_uncleanable_offset=%d\tnext_dirty_offset=%d"
                    + "\tbytes_read=%d\tbytes_written=%d\tmessages_read=%d\tmessages_written=%d\tmap_messages_read=%d"
                    + "\tinvalid_messages=%d",
                range.firstDirtyOffset(), cleanable.firstUncleanableOffset(), result.getKey(), stats.bytesRead(),
                stats.bytesWritten(), stats.messagesRead(), stats.messagesWritten(), stats.mapMessagesRead(),
                stats.invalidMessagesRead());
        } finally {
            log.close();
        }
    }
}
