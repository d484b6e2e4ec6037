CREATE TABLE customers (id BIGINT, name STRING, amount DOUBLE, updated BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$source',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE diffs (id BIGINT, name STRING, amount DOUBLE, updated BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '$output',
  'properties.bootstrap.servers' = '$servers', 'properties.linger.ms' = '20',
  'properties.transaction.timeout.ms' = '300000', 'format' = 'debezium-json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '$output'
);
INSERT INTO diffs SELECT id, name, amount, updated FROM customers
