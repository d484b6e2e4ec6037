-- The first pipeline of the README in SQL: where each aircraft is, and how that changes.
CREATE PIPELINE first WITH (
    time = offset,
    kafka = (bootstrap.servers = 'localhost:9092'),
    run = (checkpoint = './checkpoint-first'));
CREATE SOURCE flights FROM KAFKA (topic = 'flights', format = (key = bytes, value = json));
CREATE OPERATOR aircraft WITH (upsert = flights);
CREATE SINK diffs FROM aircraft INTO KAFKA (topic = 'whereabouts');
