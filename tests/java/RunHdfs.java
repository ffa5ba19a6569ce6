import java.util.Scanner;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;

/** A name node and data nodes below the directory of the first argument; prints the port, then does what a line says. */
public class RunHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("hdfs.minidfs.basedir", arguments[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings)
            .numDataNodes(Integer.parseInt(arguments[1]))
            .build();
        cluster.waitActive();
        System.out.println(cluster.getNameNodePort());
        Scanner lines = new Scanner(System.in);
        DataNodeProperties stopped = null;
        while (lines.hasNextLine()) {
            switch (lines.nextLine()) {
                case "enter safe mode" -> cluster.getFileSystem().setSafeMode(SafeModeAction.ENTER);
                case "leave safe mode" -> cluster.getFileSystem().setSafeMode(SafeModeAction.LEAVE);
                case "stop a data node" -> stopped = cluster.stopDataNode(0);
                case "start it again" -> {
                    cluster.restartDataNode(stopped, true);
                    cluster.waitActive();
                }
                case "restart the name node" -> cluster.restartNameNode();
                default -> throw new IllegalArgumentException();
            }
            System.out.println("done");
        }
        System.exit(0);
    }
}
