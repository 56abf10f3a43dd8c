import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS on loopback, for as long as stdin is open: SmallHdfs DIRECTORY prints `ready PORT`. */
public class SmallHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("hdfs.minidfs.basedir", arguments[0]);
        configuration.set("dfs.permissions.enabled", "false");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("ready " + cluster.getNameNodePort());
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
