// Reads lines "encode|decode secret cipher keyLength iterations base64", prints Kafka's result in Base64, or "refused".
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

public class CodePasswords {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            PasswordEncoder encoder = PasswordEncoder.encrypting(
                new Password(text(words[1])), null, words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            String result;
            try {
                result = words[0].equals("encode")
                    ? encoder.encode(new Password(text(words[5])))
                    : encoder.decode(text(words[5])).value();
            } catch (Exception refused) {
                System.out.println("refused");
                continue;
            }
            System.out.println(Base64.getEncoder().encodeToString(result.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
