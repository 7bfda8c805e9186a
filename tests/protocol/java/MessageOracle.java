import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Apache Kafka's own opinion about bytes. Each line of input is one question, each line of output its answer:
 *
 *   request|response KEY VERSION HEX   decode the body; answer what is left over, the same message encoded again
 *                                      in hex, and as JSON; or "error" and the exception
 *   record CLASS VERSION HEX           the same for a message that is no request or response
 *   header KEY VERSION                 answer the header versions of the request and of the response
 *   errors                             answer every error as CODE:NAME:RETRIABLE, separated by spaces
 */
public final class MessageOracle {
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
            switch (question[0]) {
                case "errors":
                    return errors();
                case "header":
                    ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(question[1]));
                    short version = Short.parseShort(question[2]);
                    return type.requestHeaderVersion(version) + " " + type.responseHeaderVersion(version);
                case "record":
                    ApiMessage record = (ApiMessage) Class.forName(question[1]).getConstructor().newInstance();
                    return recode(record, Short.parseShort(question[2]), question[3]);
                default:
                    ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(question[1]));
                    ApiMessage body = question[0].equals("request") ? api.newRequest() : api.newResponse();
                    return recode(body, Short.parseShort(question[2]), question[3]);
            }
        } catch (Throwable e) {
            return "error " + String.valueOf(e).replaceAll("\\s+", " ");
        }
    }

    private static String recode(ApiMessage message, short version, String hex) throws Exception {
        ByteBuffer input = ByteBuffer.wrap(HEX.parseHex(hex));
        message.read(new ByteBufferAccessor(input), version);
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        JsonNode json = (JsonNode) converter.getMethod("write", message.getClass(), short.class)
            .invoke(null, message, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        return input.remaining() + " " + HEX.formatHex(output.array(), 0, output.position()) + " " + json;
    }

    private static String errors() {
        StringBuilder all = new StringBuilder();
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            all.append(error.code()).append(':').append(error.name()).append(':').append(retriable).append(' ');
        }
        return all.toString().trim();
    }
}
