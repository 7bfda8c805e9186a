import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs Kafka's command-line tools one after the other in one process. A line of input is a class and its arguments,
 * separated by tabs; the answer is what the tool printed and a line with U+0001 and its exit status.
 */
public final class Tools {
    /** What a tool that wants to end the process throws. */
    private static final class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super("exit " + status);
            this.status = status;
        }
    }

    /** The first status that the running tool asked for; it may take what ends it for an error. */
    private static volatile Integer asked;

    private Tools() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream captured = new PrintStream(new OutputStream() {
            @Override
            public synchronized void write(int one) {
                if (asked == null) {
                    printed.write(one);
                }
            }

            @Override
            public synchronized void write(byte[] bytes, int offset, int length) {
                if (asked == null) {
                    printed.write(bytes, offset, length);
                }
            }
        }, true, StandardCharsets.UTF_8);
        System.setOut(captured);
        System.setErr(captured);
        catchExits(captured);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            asked = null;
            int status = run(parts[0], Arrays.copyOfRange(parts, 1, parts.length));
            captured.flush();
            status = asked == null ? status : asked;
            answers.write(printed.toByteArray());
            answers.print("\n\u0001" + status + "\n");
            answers.flush();
            printed.reset();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Replaces the end of the process, in Kafka's class Exit: it has another package since Kafka 4.4. */
    private static void catchExits(PrintStream captured) throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException error) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object caught = Proxy.newProxyInstance(Tools.class.getClassLoader(), new Class<?>[] {procedure}, (self, method, call) -> {
            captured.flush();
            asked = asked == null ? (Integer) call[0] : asked;
            throw new Ended((Integer) call[0]);
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, caught);
    }

    private static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Ended) {
                return ((Ended) error.getCause()).status;
            }
            error.getCause().printStackTrace();
            return 1;
        }
    }
}
