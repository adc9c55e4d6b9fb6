#!/bin/sh
# Run pay_once as its comment says: twice, in parallel, with another amount, killed at work. Usage:
# test_pay_once.sh PATH-OF-PAY_ONCE
set -eu

pay=$1
dir=$(mktemp -d)
child=""
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null || true; rm -rf "$dir"' EXIT
store=$dir/payments.db
ledger=$dir/ledger.txt

fail() {
    echo "test_pay_once: $1" >&2
    exit 1
}

charges() {
    grep -c "^$1 " "$ledger" || true
}

expect() { # STATUS command...
    wanted=$1
    shift
    status=0
    "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ "$status" = "$wanted" ] || fail "status $status instead of $wanted of: $* ($(cat "$dir/err"))"
}

# Twice in a row: one charge, one receipt.
expect 0 "$pay" "$store" "$ledger" order-1 10.00
first=$(cat "$dir/out")
expect 0 "$pay" "$store" "$ledger" order-1 10.00
[ "$(cat "$dir/out")" = "$first (once, not again)" ] || fail "the second run gave another receipt"
[ "$(charges order-1)" = 1 ] || fail "order-1 was charged $(charges order-1) times"

# Another amount under the same name.
expect 4 "$pay" "$store" "$ledger" order-1 99.00
[ "$(charges order-1)" = 1 ] || fail "order-1 was charged for another amount"

# Six at the same time: one charge, and all print the same receipt.
pids=""
for i in 1 2 3 4 5 6; do
    "$pay" "$store" "$ledger" order-2 10.00 1 >"$dir/out.$i" &
    pids="$pids $!"
done
for pid in $pids; do
    wait "$pid" || fail "a parallel run failed"
done
[ "$(charges order-2)" = 1 ] || fail "order-2 was charged $(charges order-2) times"
[ "$(sed 's/ (once, not again)//' "$dir"/out.* | sort -u | wc -l)" = 1 ] || fail "parallel runs gave several receipts"

# Killed at work: the next run neither charges again nor claims to know.
"$pay" "$store" "$ledger" order-3 10.00 600 >"$dir/out" &
child=$!
until [ "$(charges order-3)" = 1 ]; do
    kill -0 "$child" || fail "the slow run ended by itself"
    sleep 0.05
done
kill -9 "$child"
wait "$child" 2>/dev/null || true
child=""
expect 75 "$pay" "$store" "$ledger" order-3 10.00
expect 0 "$pay" --happened "$store" order-3 "found in the ledger"
expect 0 "$pay" "$store" "$ledger" order-3 10.00
[ "$(cat "$dir/out")" = "found in the ledger (once, not again)" ] || fail "the found receipt was not used"
[ "$(charges order-3)" = 1 ] || fail "order-3 was charged $(charges order-3) times"

# A charge that certainly did not happen leaves the order free.
expect 1 "$pay" "$store" "$dir/no/such/ledger" order-4 10.00
expect 0 "$pay" "$store" "$ledger" order-4 10.00
[ "$(charges order-4)" = 1 ] || fail "order-4 was charged $(charges order-4) times"

# Nothing to settle.
expect 1 "$pay" --did-not-happen "$store" order-4
expect 2 "$pay" --happened
