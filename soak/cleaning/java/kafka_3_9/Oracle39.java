import java.io.File;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

/** The cleaner of Kafka 3.9. */
public final class Oracle39 extends Oracle {
    public static void main(String[] args) throws Exception {
        new Oracle39().run();
    }

    @Override
    String clean(File folder, Map<String, String> settings, Asked asked) throws Exception {
        Still time = new Still(asked.number("now_ms"));
        UnifiedLog log = UnifiedLog.apply(folder, new LogConfig(settings), 0, 0, new AtOnce(),
            new BrokerTopicStats(false), time, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
            600_000, new LogDirFailureChannel(1), true, Option.empty(), false, new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        try {
            log.updateHighWatermark(asked.number("high_watermark"));
            long known = asked.number("first_dirty_offset");
            Option<Object> checkpoint = known < 0 ? Option.empty() : Option.apply((Object) known);
            OffsetsToClean range = LogCleanerManager.cleanableOffsets(log, checkpoint, time.milliseconds());
            LogToClean cleanable = new LogToClean(log.topicPartition(), log, range.firstDirtyOffset(),
                range.firstUncleanableDirtyOffset(), false);
            Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(asked.size("memory"), "MD5"), asked.size("io_buffer"),
                asked.size("io_buffer_max"), 0.9, unlimited, time, partition -> BoxedUnit.UNIT);
            Tuple2<Object, CleanerStats> result = cleaner.clean(cleanable);
            CleanerStats stats = result._2();
            return String.format("first_dirty_offset=%d\tfirst_uncleanable_offset=%d\tnext_dirty_offset=%d"
                    + "\tbytes_read=%d\tbytes_written=%d\tmessages_read=%d\tmessages_written=%d\tmap_messages_read=%d"
                    + "\tinvalid_messages=%d",
                range.firstDirtyOffset(), cleanable.firstUncleanableOffset(), (Long) result._1(), stats.bytesRead(),
                stats.bytesWritten(), stats.messagesRead(), stats.messagesWritten(), stats.mapMessagesRead(),
                stats.invalidMessagesRead());
        } finally {
            log.close();
        }
    }
}
