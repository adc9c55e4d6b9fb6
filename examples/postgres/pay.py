"""Pay once, with psycopg 3: /usr/bin/python3 pay.py DATABASE KEY ACCOUNT CENTS

Prints the verdict and the answer. Exit status: 0 paid (now or before), 4 the key was used for something else,
75 nobody knows or somebody else is at it: run it again, with the same key; 1 failed, nothing was paid."""

import json
import sys
import time

import psycopg


# snippet
def pay(db, key, account, cents):
    with db.transaction():
        verdict, answer = db.execute(
            "SELECT verdict, answer FROM hapax.begin('payments', %s, fingerprint => %s, ttl => '24 hours')",
            (key, f"{account} {cents}")).fetchone()
        if verdict == "fresh":
            db.execute("UPDATE account SET cents = cents - %s WHERE name = %s", (cents, account))
            number = db.execute("INSERT INTO payment (account, cents) VALUES (%s, %s) RETURNING number",
                                (account, cents)).fetchone()[0]
            answer = json.dumps({"payment": number})
            db.execute("SELECT hapax.complete('payments', %s, %s)", (key, answer))
        return verdict, answer
# end


def pay_at_last(database, *what):
    """OperationalError: serialization failures, deadlocks, lost connections, also in COMMIT. Whatever became of the
    transaction, the same once more is right: it finds the answer, or pays. When the tries run out, nobody knows; nor does
    an error of another kind in a later try tell what became of an earlier one."""
    in_doubt = None
    for _ in range(5):
        try:
            with psycopg.connect(database, autocommit=True) as db:
                return pay(db, *what)
        except psycopg.OperationalError as error:
            in_doubt = error
            time.sleep(0.1)
        except psycopg.Error as error:
            raise in_doubt or error
    raise in_doubt


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    try:
        verdict, answer = pay_at_last(*sys.argv[1:])
    except psycopg.Error as error:
        print(f"pay: {error}", file=sys.stderr)
        return 75 if isinstance(error, psycopg.OperationalError) else 1
    print(verdict, answer or "")
    return {"fresh": 0, "replay": 0, "mismatch": 4}.get(verdict, 75)


if __name__ == "__main__":
    sys.exit(main())
