import org.apache.kafka.clients.admin.Admin;

/** What AdminClient cannot ask before 4.1. */
final class Newer {
    private Newer() {
    }

    static void check(Admin admin, String topic, String group) {
    }
}
