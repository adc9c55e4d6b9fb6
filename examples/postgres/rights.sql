-- An application's role that may use the functions and can neither read nor change Hapax's tables. Run it as their owner.
CREATE ROLE shop LOGIN;
GRANT USAGE ON SCHEMA hapax TO shop;
GRANT EXECUTE ON FUNCTION
    hapax.begin(text, text, bytea, interval), hapax.begin(text, text, text, interval),
    hapax.complete(text, text, bytea, integer), hapax.complete(text, text, text, integer),
    hapax.complete(text, text, jsonb, integer), hapax.release(text, text), hapax.lookup(text, text),
    hapax.sweep(integer), hapax.identity(text, text)
TO shop;
