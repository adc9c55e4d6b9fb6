-- Pay once without any table of Hapax: the business table itself has the key, in a unique column. As pay.sql:
--
--     psql DATABASE -v key=order-1 -v account=alice -v cents=1000 -f own_column.sql
\set ON_ERROR_STOP on
\set QUIET on

-- snippet
BEGIN;
WITH made AS (
    INSERT INTO transfer (account, cents, idempotency_key) VALUES (:'account', :'cents', :'key')
    ON CONFLICT (idempotency_key) DO NOTHING RETURNING number
)
SELECT max(number) AS number, count(*) = 1 AS fresh, 'fresh' AS verdict FROM made \gset
\if :fresh
    UPDATE account SET cents = cents - :'cents' WHERE name = :'account';
\else
    -- A statement of its own: its snapshot sees what the INSERT has waited for.
    SELECT number, CASE WHEN (account, cents) = (:'account', :'cents') THEN 'replay' ELSE 'mismatch' END AS verdict
    FROM transfer WHERE idempotency_key = :'key' \gset
\endif
COMMIT;
-- end
SELECT CASE :'verdict' WHEN 'mismatch' THEN '' ELSE jsonb_build_object('payment', :number)::text END AS answer \gset
\echo :verdict :answer
