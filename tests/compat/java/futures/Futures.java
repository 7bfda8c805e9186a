package futures;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.KafkaFuture;

/** Waits for what an AdminClient was asked for. */
public final class Futures {
    private Futures() {
    }

    public static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(30, TimeUnit.SECONDS);
    }

    /** It has to fail with exactly this error. */
    public static void fails(Class<?> expected, KafkaFuture<?> future) throws Exception {
        try {
            get(future);
        } catch (ExecutionException error) {
            if (expected.equals(error.getCause().getClass())) {
                return;
            }
            throw error;
        }
        throw new AssertionError("no " + expected);
    }
}
