-- Pay once, as a psql script:
--
--     psql DATABASE -v key=order-1 -v account=alice -v cents=1000 -f pay.sql
--
-- Prints the verdict and the answer. Run it again with the same key: nothing more is paid, and the answer is the same.
\set ON_ERROR_STOP on
\set QUIET on

-- snippet
BEGIN;
SELECT verdict, coalesce(answer, '') AS answer, verdict = 'fresh' AS fresh
FROM hapax.begin('payments', :'key', fingerprint => concat_ws(' ', :'account', :'cents'), ttl => '24 hours') \gset
\if :fresh
    UPDATE account SET cents = cents - :'cents' WHERE name = :'account';
    INSERT INTO payment (account, cents) VALUES (:'account', :'cents') RETURNING number \gset
    SELECT jsonb_build_object('payment', :number) AS answer \gset
    SELECT hapax.complete('payments', :'key', :'answer') AS kept_until \gset
\endif
COMMIT;
-- end
\echo :verdict :answer
