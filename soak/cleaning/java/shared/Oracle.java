import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;

/**
 * Runs Apache Kafka's cleaner on partition folders. Each line of standard input is a request: `key=value` pairs,
 * separated by tabs. Each response is one line, either `ok` and the figures of the pass or `error` and a message.
 */
abstract class Oracle {
    /** Opens the log in the folder as a broker does, chooses the cleanable range, cleans it, and closes the log. */
    abstract String clean(File folder, Map<String, String> settings, Asked asked) throws Exception;

    void run() throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                Asked asked = new Asked(line);
                answer = "ok\t" + clean(new File(asked.text("folder")), asked.topicSettings(), asked);
            } catch (Throwable error) {
                answer = "error\t" + error.toString().replace('\n', ' ');
                error.printStackTrace();
            }
            answers.println(answer);
        }
    }

    /** A request, which is one line of input. */
    static final class Asked {
        private final Map<String, String> fields = new HashMap<>();

        Asked(String line) {
            for (String field : line.split("\t")) {
                int separator = field.indexOf('=');
                fields.put(field.substring(0, separator), field.substring(separator + 1));
            }
        }

        String text(String name) {
            return fields.get(name);
        }

        long number(String name) {
            return Long.parseLong(fields.get(name));
        }

        int size(String name) {
            return Integer.parseInt(fields.get(name));
        }

        /** The fields whose names begin with `topic:`. */
        Map<String, String> topicSettings() {
            Map<String, String> found = new HashMap<>();
            fields.forEach((name, value) -> {
                if (name.startsWith("topic:")) {
                    found.put(name.substring(6), value);
                }
            });
            return found;
        }
    }

    /** A clock that does not advance. */
    static final class Still implements Time {
        private final long now;

        Still(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long milliseconds) {
            throw new UnsupportedOperationException("this clock does not wait");
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException("this clock does not wait");
        }
    }

    /** A scheduler that runs one-time tasks immediately, such as the deletion of files, and ignores periodic tasks. */
    static final class AtOnce implements Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            if (period < 0) {
                task.run();
            }
            return new Done();
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    }

    /** A scheduled task, whose cancellation has no effect. */
    static final class Done extends FutureTask<Object> implements ScheduledFuture<Object> {
        Done() {
            super(() -> null);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }
    }
}
