import java.util.Collection;
import java.util.Collections;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.common.ClassicGroupState;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.config.ConfigResource;

/** What AdminClient can ask since 4.0 and 4.1. */
final class Newer {
    private Newer() {
    }

    static void check(Admin admin, String topic, String group) {
        Report.feature("list groups of all kinds", () -> {
            Collection<GroupListing> listed = admin.listGroups().all().get();
            GroupListing found = listed.stream().filter(each -> each.groupId().equals(group)).findFirst().get();
            Report.equal("consumer", found.protocol());
            Report.equal(GroupType.CLASSIC, found.type().get());
            Report.equal(GroupState.STABLE, found.groupState().get());
            ListGroupsOptions others = new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE, GroupType.STREAMS));
            Report.equal(0, admin.listGroups(others).all().get().size());
        });
        Report.feature("describe classic groups", () -> {
            ClassicGroupDescription described =
                admin.describeClassicGroups(Collections.singleton(group)).all().get().get(group);
            Report.equal(ClassicGroupState.STABLE, described.state());
            Report.equal("consumer", described.protocol());
            Report.equal(1, described.members().size());
        });
        Report.feature("list resources with settings", () -> {
            Set<ConfigResource.Type> types = Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER);
            Collection<ConfigResource> resources =
                admin.listConfigResources(types, new ListConfigResourcesOptions()).all().get();
            Report.equal(true, resources.contains(new ConfigResource(ConfigResource.Type.TOPIC, topic)));
            Report.equal(true, resources.stream().anyMatch(each -> each.type() == ConfigResource.Type.BROKER));
        });
    }
}
