import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;

/**
 * Apache Kafka's own reading and writing of records. Each line of input is one question, each line of output its answer:
 *
 *   read HEX                             answer what these records are, or "error" and the exception
 *   write SEED MAGIC CODEC TIMETYPE      answer random records of that format: hex, a space, what they are
 *   marker SEED                          the same for the control batch that ends a transaction
 */
public final class RecordOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] question) {
        try {
            if (question[0].equals("read")) {
                ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(question[1]));
                return describe(MemoryRecords.readableRecords(bytes));
            }
            Random random = new Random(Long.parseLong(question[1]));
            MemoryRecords records = question[0].equals("marker")
                ? marker(random)
                : write(random, Byte.parseByte(question[2]), question[3], TimestampType.forName(question[4]));
            ByteBuffer bytes = records.buffer().duplicate();
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            return HEX.formatHex(copy) + " " + describe(records);
        } catch (Exception error) {
            return "error " + error;
        }
    }

    private static MemoryRecords marker(Random random) {
        ControlRecordType type = random.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(random.nextInt(1 << 30), 1_700_000_000_000L, random.nextInt(100),
            random.nextInt(1 << 30), (short) random.nextInt(1000), new EndTransactionMarker(type, random.nextInt(1000)));
    }

    private static MemoryRecords write(Random random, byte magic, String codec, TimestampType type) {
        boolean idempotent = magic == 2 && random.nextBoolean();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1024), magic,
            Compression.of(CompressionType.forName(codec)).build(), type, random.nextInt(1 << 30),
            type == TimestampType.LOG_APPEND_TIME ? 1_700_000_001_234L : -1L,
            idempotent ? random.nextInt(1 << 30) : -1L, (short) (idempotent ? random.nextInt(1000) : -1),
            idempotent ? random.nextInt(1 << 30) : -1, idempotent && random.nextBoolean(), false,
            magic == 2 ? random.nextInt(50) : -1, 1 << 24);
        int count = random.nextInt(4) == 0 ? 100 + random.nextInt(200) : 1 + random.nextInt(5);
        for (int i = 0; i < count; i++) {
            long timestamp = magic == 0 ? -1L : 1_700_000_000_000L + random.nextInt(100_000) - 50_000;
            byte[] key = bytes(random, 20);
            byte[] value = bytes(random, random.nextInt(10) == 0 ? 70_000 : 300);
            if (magic == 2) {
                builder.append(timestamp, key, value, headers(random));
            } else {
                builder.append(timestamp, key, value);
            }
        }
        return builder.build();
    }

    private static byte[] bytes(Random random, int most) {
        if (random.nextInt(5) == 0) {
            return null;
        }
        byte[] made = new byte[random.nextInt(most)];
        if (random.nextBoolean()) {
            random.nextBytes(made);
        }
        return made;
    }

    private static Header[] headers(Random random) {
        Header[] made = new Header[random.nextInt(3) == 0 ? random.nextInt(4) : 0];
        for (int i = 0; i < made.length; i++) {
            made[i] = new RecordHeader("header-ü-" + i, bytes(random, 100));
        }
        return made;
    }

    private static String describe(MemoryRecords records) {
        StringBuilder text = new StringBuilder();
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            text.append(String.format("batch,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%b,%b;", batch.magic(),
                batch.compressionType().id, batch.timestampType().id, batch.maxTimestamp(), batch.baseOffset(),
                batch.lastOffset(), batch.producerId(), batch.producerEpoch(), batch.baseSequence(),
                batch.partitionLeaderEpoch(), batch.isTransactional(), batch.isControlBatch()));
            for (Record record : batch) {
                record.ensureValid();
                text.append(record.offset()).append(',').append(record.timestamp()).append(',');
                text.append(hex(record.key())).append(',').append(hex(record.value()));
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    text.append(',').append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)));
                    text.append('=').append(value == null ? "null" : HEX.formatHex(value));
                }
                text.append(';');
            }
        }
        return text.toString();
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HEX.formatHex(copy);
    }
}
