// Pay once, with pg (npm install): node pay.mjs DATABASE KEY ACCOUNT CENTS
//
// Prints the verdict and the answer. Exit status: 0 paid (now or before), 4 the key was used for something else,
// 75 nobody knows or somebody else is at it: run it again, with the same key; 1 failed, nothing was paid.
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'

// snippet
async function pay (db, key, account, cents) {
  await db.query('BEGIN')
  const begun = await db.query(
    "SELECT verdict, answer FROM hapax.begin('payments', $1, fingerprint => $2, ttl => '24 hours')",
    [key, `${account} ${cents}`])
  let { verdict, answer } = begun.rows[0]
  if (verdict === 'fresh') {
    await db.query('UPDATE account SET cents = cents - $1 WHERE name = $2', [cents, account])
    const paid = await db.query('INSERT INTO payment (account, cents) VALUES ($1, $2) RETURNING number',
      [account, cents])
    answer = JSON.stringify({ payment: Number(paid.rows[0].number) })
    await db.query("SELECT hapax.complete('payments', $1, $2)", [key, answer])
  }
  await db.query('COMMIT')
  return { verdict, answer }
}
// end

// Serialization failures and deadlocks (class 40), a server that stops (57), lost connections (no SQLSTATE).
function isPassing (error) {
  return !/^[0-9A-Z]{5}$/.test(error.code ?? '') || /^(08|40|57)/.test(error.code)
}

// Whatever became of the transaction, also when COMMIT was lost, the same once more is right: it finds the answer, or
// pays. Closing the connection rolls back. When the tries run out, nobody knows; nor does an error of another kind in a
// later try tell what became of an earlier one.
async function payAtLast (database, ...what) {
  let inDoubt
  for (let tries = 0; tries < 5; tries++) {
    const db = new pg.Client({ connectionString: database })
    db.on('error', () => {}) // the query that fails says so, too
    try {
      await db.connect()
      return await pay(db, ...what)
    } catch (error) {
      if (!isPassing(error)) throw inDoubt ?? error
      inDoubt = error
      await sleep(100)
    } finally {
      await db.end().catch(() => {})
    }
  }
  throw inDoubt
}

if (process.argv.length !== 6) {
  console.error('usage: node pay.mjs DATABASE KEY ACCOUNT CENTS')
  process.exit(2)
}
try {
  const { verdict, answer } = await payAtLast(...process.argv.slice(2))
  console.log(verdict, answer ?? '')
  process.exitCode = { fresh: 0, replay: 0, mismatch: 4 }[verdict] ?? 75
} catch (error) {
  console.error(`pay: ${error.message}`)
  process.exitCode = isPassing(error) ? 75 : 1
}
