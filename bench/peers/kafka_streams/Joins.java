import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Joins of the benchmarks, until they are killed: Joins JOB SERVERS GROUP FOLDER THREADS OUTPUT
 * INPUT...
 *
 * <p>`q3` is two joins of tables by foreign keys, of lineitem with orders and of these with
 * customer. `asof` is the join of a stream with a versioned table, whose records wait until both
 * topics have passed their times. Exactly once, with a commit a second; RocksDB and changelogs.
 */
public final class Joins {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Consumed<byte[], byte[]> BYTES =
            Consumed.with(Serdes.ByteArray(), Serdes.ByteArray());

    // Of a backlog a task may read one topic first, however long it waits for the other: with a
    // grace of a millisecond, orders met prices of the backlog before.
    private static final Duration GRACE = Duration.ofMinutes(2);

    private Joins() {}

    private static JsonNode read(byte[] value) {
        try {
            return JSON.readTree(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] write(JsonNode value) {
        try {
            return JSON.writeValueAsBytes(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] key(byte[] value, String column) {
        String text = "{\"" + column + "\":" + read(value).get(column).asLong() + "}";
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static long number(byte[] value, String column) {
        return read(value).get(column).asLong();
    }

    private static void q3(StreamsBuilder builder, String output, String[] inputs) {
        KTable<byte[], byte[]> customers =
                builder.table(inputs[0], BYTES).filter((key, row) -> number(row, "seg") == 0);
        KTable<byte[], byte[]> orders =
                builder.table(inputs[1], BYTES).filter((key, row) -> number(row, "odate") < 500);
        KTable<byte[], byte[]> lines =
                builder.table(inputs[2], BYTES).filter((key, row) -> number(row, "ship") > 500);
        KTable<byte[], byte[]> ordered =
                lines.join(
                        orders,
                        line -> key(line, "ok"),
                        (line, order) -> joined(read(line), read(order)),
                        kept("ordered"));
        ordered.join(customers, row -> key(row, "ck"), (row, customer) -> row, kept("q3"))
                .toStream()
                .to(output, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    private static Materialized<byte[], byte[], KeyValueStore<Bytes, byte[]>> kept(String name) {
        return Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as(name)
                .withKeySerde(Serdes.ByteArray())
                .withValueSerde(Serdes.ByteArray());
    }

    private static byte[] joined(JsonNode line, JsonNode order) {
        ObjectNode row = JSON.createObjectNode();
        row.set("ok", line.get("ok"));
        row.set("ln", line.get("ln"));
        row.put("revenue", line.get("price").asLong() * (100 - line.get("disc").asLong()));
        row.set("odate", order.get("odate"));
        row.set("prio", order.get("prio"));
        row.set("ck", order.get("ck"));
        return write(row);
    }

    private static void asof(StreamsBuilder builder, String output, String[] inputs) {
        TimestampExtractor happened = Joins::happened;
        KTable<byte[], byte[]> prices =
                builder.table(
                        inputs[1],
                        BYTES.withTimestampExtractor(happened),
                        Materialized.as(
                                Stores.persistentVersionedKeyValueStore(
                                        "prices", Duration.ofDays(1))));
        builder.stream(inputs[0], BYTES.withTimestampExtractor(happened))
                .leftJoin(
                        prices,
                        Joins::priced,
                        Joined.<byte[], byte[], byte[]>as("priced")
                                .withKeySerde(Serdes.ByteArray())
                                .withValueSerde(Serdes.ByteArray())
                                .withOtherValueSerde(Serdes.ByteArray())
                                .withGracePeriod(GRACE))
                .to(output, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    private static long happened(ConsumerRecord<Object, Object> record, long before) {
        return number((byte[]) record.value(), "ts");
    }

    private static byte[] priced(byte[] order, byte[] price) {
        ObjectNode row = (ObjectNode) read(order);
        JsonNode found = price == null ? null : read(price);
        row.set("price", found == null ? null : found.get("price"));
        row.set("pts", found == null ? null : found.get("ts"));
        return write(row);
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("application.id", arguments[2]);
        settings.put("state.dir", arguments[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "1000");
        settings.put("num.stream.threads", arguments[4]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.task.idle.ms", "1000");

        String[] inputs = Arrays.copyOfRange(arguments, 6, arguments.length);
        StreamsBuilder builder = new StreamsBuilder();
        if (arguments[0].equals("q3")) {
            q3(builder, arguments[5], inputs);
        } else {
            asof(builder, arguments[5], inputs);
        }
        Topology topology = builder.build();

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
