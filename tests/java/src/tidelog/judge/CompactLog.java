package tidelog.judge;

import java.io.File;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Has Apache Kafka's own cleaner compact the log in a directory: directory, first dirty offset, the time, and topic
 * settings as name=value. Prints how far it came and the seconds it took.
 */
public final class CompactLog {
    private static final int MAP_BYTES = 128 << 20;
    private static final int BUFFER_BYTES = 256 << 10;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("cleanup.policy", "compact");
        for (int i = 3; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BrokerTopicStats stats = new BrokerTopicStats();
        UnifiedLog log = UnifiedLog.create(new File(args[0]), new LogConfig(settings), 0L, 0L, scheduler, stats,
            Time.SYSTEM, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE,
            new LogDirFailureChannel(1), true, Optional.empty());
        try {
            log.updateHighWatermark(log.logEndOffset());
            Throttler unthrottled = new Throttler(Double.MAX_VALUE, 300, "compaction", "bytes", Time.SYSTEM);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(MAP_BYTES), BUFFER_BYTES, 1 << 20, 0.9,
                unthrottled, Time.SYSTEM, partition -> { });
            long uncleanable = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
            LogToClean range = new LogToClean(log, Long.parseLong(args[1]), uncleanable, false);
            long start = System.nanoTime();
            long end = cleaner.doClean(range, Long.parseLong(args[2])).getKey();
            System.out.println("{\"end_offset\": " + end + ", \"seconds\": " + (System.nanoTime() - start) / 1e9 + "}");
        } finally {
            log.close();
            scheduler.shutdown();
            stats.close();
        }
    }
}
