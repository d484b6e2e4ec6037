CREATE TABLE $name ($columns, PRIMARY KEY ($key) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '$topic',
  'properties.bootstrap.servers' = '$servers', 'properties.group.id' = '$group',
  'properties.isolation.level' = 'read_committed',
  'key.format' = 'json', 'value.format' = 'json'
)
