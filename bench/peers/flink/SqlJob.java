import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs the statements of a file as one job, until it is killed: SqlJob FILE FOLDER PARALLELISM.
 *
 * <p>State is in RocksDB; checkpoints are incremental, exactly once, one a second, in FOLDER.
 */
public final class SqlJob {
    private SqlJob() {}

    public static void main(String[] arguments) throws Exception {
        String folder = Path.of(arguments[1]).toAbsolutePath().toString();
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "rocksdb");
        settings.setString("state.backend.rocksdb.localdir", folder + "/local");
        settings.setString("execution.checkpointing.dir", "file://" + folder + "/checkpoints");
        settings.setString("execution.checkpointing.incremental", "true");
        settings.setString("execution.checkpointing.interval", "1s");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("taskmanager.memory.managed.size", "512m");
        settings.setString("taskmanager.memory.network.max", "128m");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(Integer.parseInt(arguments[2]));
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        StatementSet inserts = tables.createStatementSet();
        for (String statement : Files.readString(Path.of(arguments[0])).split(";")) {
            if (statement.strip().startsWith("INSERT")) {
                inserts.addInsertSql(statement);
            } else if (!statement.isBlank()) {
                tables.executeSql(statement);
            }
        }
        System.out.println(inserts.explain());
        inserts.execute().await();
    }
}
