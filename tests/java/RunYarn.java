import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/** A resource manager and a node manager below the directory of the first argument, until standard input ends. */
public class RunYarn {
    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Configuration settings = new YarnConfiguration();
        for (String of : List.of("", ".scheduler", ".resource-tracker", ".admin", ".webapp")) {
            settings.set("yarn.resourcemanager" + of + ".address", "127.0.0.1:0");
        }
        for (String of : List.of("", ".localizer", ".webapp", ".collector-service")) {
            settings.set("yarn.nodemanager" + of + ".address", "127.0.0.1:0");
        }
        settings.set("yarn.nodemanager.local-dirs", home.resolve("local").toString());
        settings.set("yarn.nodemanager.log-dirs", home.resolve("logs").toString());
        settings.set("yarn.nodemanager.resource.memory-mb", "4096");
        settings.set("yarn.scheduler.minimum-allocation-mb", "128");
        // A test's machine may have a full disk, and Java more address space than a container's share.
        settings.set("yarn.nodemanager.disk-health-checker.enable", "false");
        settings.set("yarn.nodemanager.vmem-check-enabled", "false");
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
        ResourceManager manager = new ResourceManager();
        manager.init(settings);
        manager.start();
        NodeManager node = new NodeManager();
        node.init(settings);
        node.start();
        Path partial = home.resolve("partial");
        try (var file = Files.newOutputStream(partial)) {
            settings.writeXml(file);
        }
        Files.move(partial, home.resolve("yarn-site.xml"));
        while (System.in.read() >= 0) {}
        node.stop();
        manager.stop();
        System.exit(0);
    }
}
