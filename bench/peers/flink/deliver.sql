CREATE TABLE source (id BIGINT, name STRING, price DOUBLE, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'kafka', 'topic' = '$topic', 'scan.startup.mode' = 'earliest-offset',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = 'deliver',
  'format' = 'debezium-json', 'debezium-json.schema-include' = 'true'
);
CREATE TABLE orders (id BIGINT, name STRING, price DOUBLE, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = '$url', 'table-name' = 'orders', 'username' = 'postgres',
  'password' = 'none', 'sink.buffer-flush.max-rows' = '5000'
);
INSERT INTO orders SELECT id, name, price FROM source
