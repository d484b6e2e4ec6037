import com.alibaba.otter.canal.connector.core.producer.MQDestination;
import com.alibaba.otter.canal.connector.core.util.Callback;
import com.alibaba.otter.canal.connector.kafka.producer.CanalKafkaProducer;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * CanalToKafka PORT DATABASE BINLOG SERVERS TOPIC: what the starter in canal.deployer does for one
 * destination. The deployer is on no registry; the server and the producer are Canal's own.
 */
public class CanalToKafka {
    private static final String DESTINATION = "ikebana";
    private static final int ROWS = 50;
    private static final long WAIT_MS = 100;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        String database = arguments[1];
        ClientIdentity client = new ClientIdentity(DESTINATION, (short) 1001, database + "\\..*");
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        CanalParameter parameters = parameters(port, database, arguments[2]);
        server.setCanalInstanceGenerator(name -> {
            Canal canal = new Canal();
            canal.setId(1L);
            canal.setName(name);
            canal.setCanalParameter(parameters);
            return new CanalInstanceWithManager(canal, client.getFilter());
        });
        server.start();
        server.start(DESTINATION);
        server.subscribe(client);
        CanalKafkaProducer producer = new CanalKafkaProducer();
        producer.init(settings(arguments[3]));
        MQDestination destination = new MQDestination();
        destination.setCanalDestination(DESTINATION);
        destination.setTopic(arguments[4]);
        while (true) {
            send(server, client, producer, destination);
        }
    }

    private static void send(
            CanalServerWithEmbedded server,
            ClientIdentity client,
            CanalKafkaProducer producer,
            MQDestination destination)
            throws Exception {
        Message message = server.getWithoutAck(client, ROWS, WAIT_MS, TimeUnit.MILLISECONDS);
        long batch = message.getId();
        if (batch == -1) {
            return;
        }
        CountDownLatch told = new CountDownLatch(1);
        producer.send(destination, message, new Callback() {
            @Override
            public void commit() {
                server.ack(client, batch);
                told.countDown();
            }

            @Override
            public void rollback() {
                server.rollback(client, batch);
                told.countDown();
            }
        });
        told.await();
    }

    private static Properties settings(String servers) {
        Properties settings = new Properties();
        settings.put("kafka.bootstrap.servers", servers);
        settings.put("kafka.acks", "all");
        settings.put("kafka.max.in.flight.requests.per.connection", "1");
        settings.put("canal.mq.flatMessage", "true");
        return settings;
    }

    private static CanalParameter parameters(int port, String database, String binlog) {
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", port);
        CanalParameter parameters = new CanalParameter();
        parameters.setMetaMode(CanalParameter.MetaMode.MEMORY);
        parameters.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        parameters.setIndexMode(CanalParameter.IndexMode.MEMORY);
        parameters.setStorageMode(CanalParameter.StorageMode.MEMORY);
        parameters.setSourcingType(CanalParameter.SourcingType.MYSQL);
        parameters.setDbAddresses(List.of(address));
        parameters.setMasterAddress(address);
        parameters.setMasterUsername("canal");
        parameters.setMasterPassword("canal");
        parameters.setDbUsername("canal");
        parameters.setDbPassword("canal");
        // From its beginning, since Canal takes no snapshot.
        parameters.setPositions(List.of("{\"journalName\":\"" + binlog + "\",\"position\":4}"));
        parameters.setDefaultDatabaseName(database);
        parameters.setSlaveId(5678L);
        parameters.setConnectionCharset("UTF-8");
        parameters.setConnectionCharsetNumber((byte) 33);
        parameters.setDetectingEnable(false);
        parameters.setTsdbEnable(false);
        parameters.setParallel(false);
        parameters.setGtidEnable(false);
        parameters.setMemoryStorageRawEntry(true);
        return parameters;
    }
}
