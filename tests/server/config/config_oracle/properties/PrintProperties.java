import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

/** Reads properties texts, one JSON string a line, and prints what java.util.Properties finds in each. */
public class PrintProperties {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Properties properties = new Properties();
            try {
                properties.load(new StringReader(json.readValue(line, String.class)));
                System.out.println(json.writeValueAsString(new TreeMap<Object, Object>(properties)));
            } catch (IllegalArgumentException e) {
                System.out.println("null");
            }
        }
    }
}
