import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.util.*;
import org.apache.avro.*;

/** Reads lines of {"references": [..], "schema": text, "written": text?} and writes what Avro says. */
public class AvroOracle {
  static Schema.Parser parser() {
    Schema.Parser p = new Schema.Parser(NameValidator.STRICT_VALIDATOR);
    p.setValidateDefaults(true);
    return p;
  }
  public static void main(String[] args) throws Exception {
    ObjectMapper m = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    for (String line; (line = in.readLine()) != null;) {
      JsonNode asked = m.readTree(line);
      ObjectNode said = m.createObjectNode();
      try {
        Schema.Parser p = parser();
        List<Schema> refs = new ArrayList<>();
        for (JsonNode r : asked.path("references")) refs.add(p.parse(r.textValue()));
        Schema s = p.parse(asked.get("schema").textValue());
        said.put("text", s.toString(refs, false));
        if (asked.has("written")) {
          Schema written;
          try {
            written = parser().parse(asked.get("written").textValue());
          } catch (RuntimeException e) {
            out.println(m.writeValueAsString(said));
            continue;
          }
          SchemaCompatibility.SchemaCompatibilityResult r =
              SchemaCompatibility.checkReaderWriterCompatibility(s, written).getResult();
          ArrayNode a = said.putArray("incompatibilities");
          for (SchemaCompatibility.Incompatibility i : r.getIncompatibilities()) a.add(i.getType() + " " + i.getLocation());
        }
      } catch (Throwable e) {
        said.put("error", e.getClass().getSimpleName() + ": " + e.getMessage());
      }
      out.println(m.writeValueAsString(said));
    }
  }
}
