/** Prints one JSON line for each feature of the compatibility table that a program tried. */
public final class Report {
    @FunctionalInterface
    public interface Check {
        void run() throws Exception;
    }

    private Report() {
    }

    public static void feature(String name, Check check) {
        String problem = null;
        try {
            check.run();
        } catch (Throwable error) {
            StringBuilder text = new StringBuilder(String.valueOf(error));
            for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
                text.append(" caused by ").append(cause);
            }
            StackTraceElement[] stack = error.getStackTrace();
            for (int i = 0; i < Math.min(6, stack.length); i++) {
                text.append(" at ").append(stack[i]);
            }
            problem = text.toString();
        }
        System.out.println("{\"feature\": \"" + name + "\", \"ok\": " + (problem == null)
            + ", \"detail\": " + (problem == null ? "null" : quote(problem)) + "}");
        System.out.flush();
    }

    public static void equal(Object expected, Object got) {
        if (expected == null ? got != null : !expected.equals(got)) {
            throw new AssertionError("expected " + expected + ", got " + got);
        }
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(' ');
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
