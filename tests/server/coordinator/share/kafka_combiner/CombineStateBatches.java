import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

/** Reads lines "start;batches so far;new batches" and prints each with Kafka's combination of the batches. */
public class CombineStateBatches {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(";", -1);
            long start = Long.parseLong(parts[0]);
            List<PersisterStateBatch> combined =
                new PersisterStateBatchCombiner(read(parts[1]), read(parts[2]), start).combineStateBatches();
            System.out.println(line + ";" + combined.stream().map(CombineStateBatches::text)
                .collect(Collectors.joining(" ")));
        }
    }

    private static List<PersisterStateBatch> read(String text) {
        List<PersisterStateBatch> batches = new ArrayList<>();
        for (String one : text.isEmpty() ? new String[0] : text.split(" ")) {
            String[] numbers = one.split(",");
            batches.add(new PersisterStateBatch(Long.parseLong(numbers[0]), Long.parseLong(numbers[1]),
                Byte.parseByte(numbers[2]), Short.parseShort(numbers[3])));
        }
        return batches;
    }

    private static String text(PersisterStateBatch batch) {
        return batch.firstOffset() + "," + batch.lastOffset() + "," + batch.deliveryState() + ","
            + batch.deliveryCount();
    }
}
