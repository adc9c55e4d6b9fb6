-- After the rows of hapax.record were copied without their sequence, and while nothing writes there: docs/POSTGRES.md.
SELECT setval('hapax.serial', (SELECT max(serial) FROM hapax.record) + 1000000);
