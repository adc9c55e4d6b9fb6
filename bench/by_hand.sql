-- What one writes without Hapax, for pgbench: claim, then answer, a transaction each. `body` is given with -D.
\set key random(1, 9223372036854775807)
\set fingerprint random(1, 9223372036854775807)
INSERT INTO by_hand (key, fingerprint, done, claimed, expires)
VALUES (:key, int8send(:fingerprint) || int8send(:key), false, now(), now() + interval '1 day') ON CONFLICT DO NOTHING;
UPDATE by_hand SET done = true, status = 200, body = :body WHERE key = :key;
