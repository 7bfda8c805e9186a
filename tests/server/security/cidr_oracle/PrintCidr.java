import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.server.authorizer.internals.CidrUtils;

/** For each line "block host": what Kafka says of the block, and whether the host is in it. */
public class PrintCidr {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            String verdict = "valid";
            try {
                CidrUtils.validate(parts[0]);
            } catch (IllegalArgumentException e) {
                verdict = e.getMessage();
            }
            System.out.println(verdict + "\t" + CidrUtils.isInRange(parts[1], parts[0]));
        }
    }
}
