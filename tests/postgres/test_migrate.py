"""Making and upgrading the tables: by several processes at once, by hand, by and for roles that may not do all."""

import json
import subprocess
import threading

from harness import HAPAX, PATIENCE_S, ROOT, at_once, config_for, wait_until


def hapax(*args, code=0):
    run = subprocess.run([HAPAX, *args], capture_output=True, text=True, timeout=PATIENCE_S * 3, check=False)
    assert run.returncode == code, (args, run.returncode, run.stderr)
    return run


def psql(server, uri, text, code=0):
    run = subprocess.run([server.binaries + "/psql", "-X", "-1", "-v", "ON_ERROR_STOP=1", "-d", uri, "-f", "-"],
                         input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == code, run.stderr
    return run


def versions(server, name):
    return dict(server.sql("SELECT name, value FROM hapax.meta WHERE name IN ('schema', 'least')", name))


def named(uri):
    return uri.rsplit("/", 1)[1]


def owned(server):
    """A database with an owner of its own and a role that owns nothing: the URIs of both, and the names."""
    name = server.database()
    server.sql(f"CREATE ROLE owner_{name} LOGIN; CREATE ROLE app_{name} LOGIN")
    server.sql(f"ALTER DATABASE {name} OWNER TO owner_{name}")
    return server.uri(name, f"owner_{name}"), server.uri(name, f"app_{name}"), f"app_{name}", name


HOLD = """
CREATE TABLE go (x int);
CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM go) LOOP
        PERFORM pg_catalog.pg_sleep(0.01);
    END LOOP;
END $$;
CREATE EVENT TRIGGER hold ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION hold();
"""
MIGRATORS = "SELECT {} FROM pg_stat_activity WHERE application_name = 'hapax' AND datname = current_database() AND "
HOLDING = MIGRATORS.format("count(*)") + "wait_event = 'PgSleep'"
WAITING = MIGRATORS.format("count(*)") + "wait_event = 'advisory'"


def test_many_processes_that_start_at_once_make_one_schema(server, database, upstream, start):
    def one(i):
        if i < 8:
            return start(config_for(upstream), f"gateway{i}", store=database)
        return json.loads(hapax("migrate", "--json", "--store", database).stdout)["to"]

    name = named(database)
    server.sql(HOLD, name)
    started = []
    thread = threading.Thread(target=lambda: started.extend(at_once(10, one)))
    thread.start()
    wait_until(lambda: server.sql(WAITING, name) == [["9"]], "all but one wait for the one that migrates")
    server.sql("INSERT INTO go VALUES (1)", name)
    thread.join(PATIENCE_S)
    assert {int(versions(server, name)["schema"])} == set(started[8:])
    assert 'schema "hapax" already exists' not in server.log_text()
    answers = at_once(8, lambda i: started[i].post("/orders", "one"))
    assert {a.status for a in answers} == {201}
    assert len(upstream.effects("/orders")) == 1


def test_a_migrator_that_is_killed_half_way_leaves_nothing_and_the_next_one_goes_on(server, database):
    name = named(database)
    server.sql(HOLD, name)
    runs = []

    def migrate():
        runs.append(subprocess.run([HAPAX, "migrate", "--store", database], capture_output=True, text=True,
                                   timeout=PATIENCE_S * 3, check=False))

    threads = [threading.Thread(target=migrate) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.sql(HOLDING, name) == [["1"]] and server.sql(WAITING, name) == [["1"]],
               "one migrates and the other waits for it")
    server.sql(MIGRATORS.format("pg_terminate_backend(pid)") + "wait_event = 'PgSleep'", name)
    wait_until(lambda: len(runs) == 1, "the killed one ends")
    assert runs[0].returncode == 5 and "connection was lost" in runs[0].stderr, runs[0]
    wait_until(lambda: server.sql(HOLDING, name) == [["1"]], "the other one migrates")
    assert server.sql("SELECT to_regclass('hapax.meta')", name) == [[""]]  # not committed yet
    server.sql("INSERT INTO go VALUES (1)", name)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert runs[1].returncode == 0 and "from version 0" in runs[1].stdout
    assert hapax("migrate", "--store", database).stdout.endswith("already\n")


def test_printed_sql_runs_as_it_stands_and_only_where_it_fits(server, database):
    offline = hapax("migrate", "--print", "--from", "0", "--store", "postgresql://").stdout
    printed = hapax("migrate", "--print", "--store", database).stdout
    assert printed == offline
    assert server.sql("SELECT to_regclass('hapax.meta')", named(database)) == [[""]]
    psql(server, database, printed)
    assert "already" in hapax("migrate", "--store", database).stdout
    again = hapax("migrate", "--print", "--store", database)
    assert again.stdout == "" and "already" in again.stderr
    assert "is not of version 0" in psql(server, database, printed, code=3).stderr


def test_printed_and_run_make_the_same_tables(server, database):
    by_hand = server.uri(server.database())
    role = "same_" + named(database)
    server.sql(f"CREATE ROLE {role}")
    hapax("migrate", "--store", database, "--role", role)
    psql(server, by_hand, hapax("migrate", "--print", "--store", by_hand, "--role", role).stdout)

    def dump(uri):
        text = subprocess.run([server.binaries + "/pg_dump", "--inserts", uri], capture_output=True, text=True,
                              check=True).stdout
        return [line for line in text.splitlines() if "restrict " not in line]  # has a random word

    assert dump(database) == dump(by_hand)


def test_a_gateway_runs_with_no_more_rights_than_migrate_grants(server, upstream, start):
    owner, app, role, name = owned(server)
    refused = hapax("migrate", "--store", app, code=5)
    assert "may create schema hapax" in refused.stderr
    hapax("migrate", "--store", owner)
    assert "hapax migrate --role" in hapax("stats", "--store", app, code=5).stderr
    assert "already" in hapax("migrate", "--store", owner, "--role", role).stdout
    assert server.sql(f"SELECT has_schema_privilege('{role}', 'hapax', 'CREATE')", name) == [["f"]]

    gateways = [start(config_for(upstream), n, store=app) for n in ("a", "b")]
    assert gateways[0].post("/orders", "one").status == 201
    assert gateways[1].post("/orders", "one").marker == "replayed"
    gateways[0].kill()
    listed = hapax("keys", "list", "--json", "--store", app).stdout
    record = json.loads(listed.splitlines()[0])
    hapax("keys", "forget", "--yes", "--store", app, record["scope"], record["key"])
    assert hapax("keys", "list", "--json", "--store", app).stdout == ""


def test_who_was_granted_all_functions_before_keeps_all_but_the_guards(server, database):
    """Version 2 came with such grants, and the guard could be misused by who had them."""
    name = named(database)
    role, odd = f"all_{name}", f'"All of {name}"'
    server.sql(f"CREATE ROLE {role}; CREATE ROLE {odd}")
    psql(server, database, (ROOT / "src/store/postgres_schema.sql").read_text() + (ROOT / "sql/functions.sql").read_text() +
         f"""INSERT INTO hapax.meta VALUES ('schema', 2), ('least', 1);
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax TO {role}, {odd};
             GRANT EXECUTE ON FUNCTION hapax.refuse_open() TO PUBLIC""")
    asked = f"""SELECT count(*) FILTER (WHERE has_function_privilege(r, p.oid, 'EXECUTE')),
                    bool_or(p.proname = 'refuse_open' AND has_function_privilege(r, p.oid, 'EXECUTE')), count(*)
                FROM pg_proc p, (VALUES ('{role}'), ('{odd[1:-1]}')) AS x (r)
                WHERE pronamespace = 'hapax'::regnamespace"""
    before = server.sql(asked, name)[0]
    assert before[0] == before[2] and before[1] == "t"
    assert "from version 2" in hapax("migrate", "--store", database).stdout
    after = server.sql(asked, name)[0]
    assert (int(after[0]), after[1]) == (int(before[0]) - 2, "f")


def test_a_role_with_an_odd_name_is_quoted(server, database):
    server.sql('CREATE ROLE "it\'s ""Odd"" -- \\"')
    hapax("migrate", "--store", database, "--role", 'it\'s "Odd" -- \\')
    assert server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax' AND nspacl::text LIKE '%Odd%'",
                      named(database)) == [["1"]]
    missing = hapax("migrate", "--store", database, "--role", "nobody_here", code=5)
    assert "nobody_here" in missing.stderr


def test_tables_of_a_newer_version_serve_older_programs_as_long_as_they_say_so(server, database, upstream, start):
    newest = json.loads(hapax("migrate", "--json", "--store", database).stdout)["to"]
    server.sql(f"UPDATE hapax.meta SET value = {newest + 1} WHERE name = 'schema'", named(database))
    assert start(config_for(upstream), store=database).post("/orders", "one").status == 201
    assert json.loads(hapax("migrate", "--json", "--store", database).stdout) == {"from": newest + 1, "to": newest + 1}
    server.sql(f"UPDATE hapax.meta SET value = {newest + 1} WHERE name = 'least'", named(database))
    for command in (["stats"], ["migrate"]):
        assert "use a newer one" in hapax(*command, "--store", database, code=1).stderr


def test_an_sqlite_store_is_migrated_by_opening_it(tmp_path, upstream, start):
    uri = f"sqlite:{tmp_path}/hapax.db"
    assert "no store at" in hapax("migrate", "--store", uri, code=3).stderr
    assert not (tmp_path / "hapax.db").exists()
    start(config_for(upstream), store=uri)
    assert json.loads(hapax("migrate", "--json", "--store", uri).stdout) == {"from": 1, "to": 1}
    assert "opened" in hapax("migrate", "--print", "--store", uri, code=1).stderr
    assert "no tables" in hapax("migrate", "--store", "fault:apply@1:" + uri, code=1).stderr
