import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Upserts of JSON become updates, until it is killed: ToDiffs SERVERS INPUT OUTPUT FOLDER THREADS
 * FORM.
 *
 * <p>The last value of a key is in a RocksDB store with a changelog; exactly once, with a commit a
 * second. FORM says how an update is written: `headers` is the value as it came, with its time and
 * diff in headers; `envelope` is one JSON object of key, value, time and diff.
 */
public final class ToDiffs {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ToDiffs() {}

    private static final class Differences implements Processor<byte[], byte[], byte[], byte[]> {
        private final boolean envelope;
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<byte[], byte[]> last;

        Differences(boolean envelope) {
            this.envelope = envelope;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> given) {
            context = given;
            last = given.getStateStore("last");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            byte[] old = last.get(record.key());
            try {
                JsonNode before = old == null ? null : JSON.readTree(old);
                JsonNode after = record.value() == null ? null : JSON.readTree(record.value());
                if (Objects.equals(before, after)) {
                    return;
                }
                if (before != null) {
                    send(record, old, before, -1);
                }
                if (after != null) {
                    send(record, record.value(), after, 1);
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            last.put(record.key(), record.value());
        }

        private void send(Record<byte[], byte[]> record, byte[] value, JsonNode read, int diff)
                throws IOException {
            if (!envelope) {
                Headers headers = new RecordHeaders();
                headers.add("time", text(record.timestamp()));
                headers.add("diff", text(diff));
                context.forward(record.withValue(value).withHeaders(headers));
                return;
            }
            ObjectNode object = JSON.createObjectNode();
            object.set("key", JSON.readTree(record.key()));
            object.set("value", read);
            object.put("time", record.timestamp()).put("diff", diff);
            context.forward(record.withValue(JSON.writeValueAsBytes(object)));
        }

        private static byte[] text(long number) {
            return Long.toString(number).getBytes(StandardCharsets.US_ASCII);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[2]);
        settings.put("state.dir", arguments[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "1000");
        settings.put("num.stream.threads", arguments[4]);
        settings.put("auto.offset.reset", "earliest");
        boolean envelope = arguments[5].equals("envelope");

        var bytes = Serdes.ByteArray();
        Topology topology = new Topology();
        topology.addSource("in", bytes.deserializer(), bytes.deserializer(), arguments[1]);
        topology.addProcessor("differences", () -> new Differences(envelope), "in");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(
                                Stores.persistentKeyValueStore("last"), Serdes.ByteArray(), Serdes.ByteArray())
                        .withCachingDisabled(),
                "differences");
        topology.addSink("out", arguments[2], bytes.serializer(), bytes.serializer(), "differences");

        KafkaStreams streams = new KafkaStreams(topology, settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    ended.countDown();
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        ended.await();
        System.exit(1);
    }
}
