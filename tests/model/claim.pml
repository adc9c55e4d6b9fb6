/* The protocol of claims: one record, several owners, one operator, and a world that is unkind to them.
 *
 * What is modelled is what src/core/record.c and src/store/rules.c do. A store's operation is one atomic step, as
 * its transaction is. The clock is whatever may happen: a lease runs out at any time, and so does a retention.
 * An owner may be slow without limit (its completion comes late), may crash anywhere, may not be told whether its
 * operation was committed (and then asks for it again), and may send a settled claim's operation once more.
 * `retry` is on_unknown of the route: one run of the model covers both.
 *
 * The variables of the second block decide nothing. They say who was promised what, independently of the fences
 * that the protocol compares, and the assertions speak of them:
 *
 *   ONE    at most one execution that may commit is in flight under a live lease
 *   FINAL  a known outcome stays as it is until its retention is over or somebody forgets it by hand
 *   FENCE  a change by anybody but the holder of the record, under its lease, changes nothing
 *   NEVER  no execution starts when the outcome is known, nor when it is unknown and held
 *   REPLAY who asks when the outcome is known gets this very answer
 *
 * tests/model/check runs it whole (no bitstate), and then each BROKEN_ variant, in which spin must find a
 * violation: a model in which nothing can go wrong proves nothing. */

#ifndef OWNERS
#define OWNERS 3
#endif
#ifndef SERIALS
#define SERIALS 3 /* claims that make a record; bounds the model */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2 /* take-overs of one record; bounds the model */
#endif
#define NOBODY  OWNERS
#define NOTHING 0
#define BY_HAND 255

mtype = { ABSENT, RUNNING, FINISHED, UNKNOWN }        /* of the record */
mtype = { IDLE, EXECUTING, COMPLETING, RELEASING, LOSING } /* of an owner */

/* The record, as a store holds it. */
mtype state = ABSENT;
byte serial;      /* of the record; `serials` of the store: never reused */
byte serials;
byte attempt;
byte holder = NOBODY; /* the owner's number in the record */
bool holder_dead;     /* the process that made the claim is gone, as others on its host can tell */
bool lease;           /* has not run out */
byte answer;
bool retry;           /* on_unknown: retry */

/* What was promised, for the assertions only. */
bool executes[OWNERS]; /* was told to execute and may still commit */
bool promised[OWNERS]; /* a lease, which has not run out since */
byte known;            /* the answer that some completion was accepted with */
bool held;             /* the outcome became unknown, and nobody has decided since */

#define FENCE_OF(s, a) ((s) * 16 + (a))

/* A running record past its lease is unknown, written down or not. */
#define SEEN_RUNNING (state == RUNNING && lease)
#define SEEN_UNKNOWN (state == UNKNOWN || (state == RUNNING && !lease))

#if defined(BROKEN_NO_ATTEMPT)
#define FENCE_HOLDS (serial == my_serial)
#elif defined(BROKEN_NO_SERIAL)
#define FENCE_HOLDS (attempt == my_attempt)
#else
#define FENCE_HOLDS (serial == my_serial && attempt == my_attempt)
#endif

#if defined(BROKEN_TAKES_LIVE)
#define MAY_TAKE_OVER (retry && (SEEN_UNKNOWN || SEEN_RUNNING))
#elif defined(BROKEN_IGNORES_HOLD)
#define MAY_TAKE_OVER (SEEN_UNKNOWN)
#else
#define MAY_TAKE_OVER (retry && SEEN_UNKNOWN)
#endif

#if defined(BROKEN_EXECUTES_KNOWN)
#define MAY_CLAIM (state == ABSENT || state == FINISHED)
#else
#define MAY_CLAIM (state == ABSENT)
#endif

inline check()
{
    /* ONE, for any number of owners up to three. */
    assert(!(executes[0] && promised[0] && executes[1] && promised[1]));
#if OWNERS > 2
    assert(!(executes[0] && promised[0] && executes[2] && promised[2]));
    assert(!(executes[1] && promised[1] && executes[2] && promised[2]));
#endif
    assert(known == NOTHING || (state == FINISHED && answer == known)) /* FINAL */
}

inline removed()
{
    state = ABSENT; serial = 0; attempt = 0; holder = NOBODY; holder_dead = false; lease = false;
    answer = NOTHING; held = false
}

/* The store has made the caller the holder. */
inline granted()
{
    assert(known == NOTHING);  /* NEVER */
    assert(!held || retry);    /* NEVER */
    state = RUNNING; holder = me; holder_dead = false; lease = true; answer = NOTHING; held = false
}

/* What the owner knows when it is told; in doubt it is told nothing and knows no fence. */
inline told_fresh()
{
    my_serial = serial; my_attempt = attempt; phase = EXECUTING;
    executes[me] = true; promised[me] = true
}

inline claim()
{
    if
    :: MAY_CLAIM && serials < SERIALS ->
        serials++; serial = serials; attempt = 1;
        granted();
        if
        :: told_fresh()
        :: skip /* in doubt: the record stands, nobody executes */
        fi
    :: MAY_TAKE_OVER && attempt < ATTEMPTS ->
        attempt++;
        granted();
        if
        :: told_fresh()
        :: skip
        fi
    :: state == FINISHED && !MAY_CLAIM ->
        assert(known != NOTHING && answer == known) /* REPLAY */
    :: SEEN_UNKNOWN && !MAY_TAKE_OVER ->
        state = UNKNOWN; lease = false; held = true /* written down; the caller is told that it is held */
    :: SEEN_RUNNING && !MAY_TAKE_OVER -> skip       /* attached, or told that it runs */
    :: else -> skip                                 /* past the model's bounds */
    fi
}

/* An operation that names its claim was accepted. */
inline accepted()
{
    assert(holder == me && promised[me] && !holder_dead) /* FENCE */
}

inline apply_settle(how)
{
    if
    :: how == COMPLETING ->
        accepted(); state = FINISHED; lease = false;
        answer = FENCE_OF(my_serial, my_attempt);
        known = answer
    :: how == RELEASING -> accepted(); removed()
    :: how == LOSING -> accepted(); state = UNKNOWN; lease = false; held = true
    fi;
    executes[me] = false; promised[me] = false
}

/* COMPLETE, RELEASE or LOSE of the claim this owner has, or once had. */
inline settle(how)
{
    if
    :: SEEN_RUNNING && FENCE_HOLDS ->
        apply_settle(how);
        if
        :: phase = IDLE
        :: skip /* in doubt: it is asked for again */
        fi
    :: !(SEEN_RUNNING && FENCE_HOLDS) ->
        phase = IDLE; executes[me] = false; promised[me] = false /* stale: it no longer counts */
    fi
}

inline extend()
{
    if
    :: SEEN_RUNNING && FENCE_HOLDS -> accepted() /* the lease begins anew: it was live, and is */
    :: !(SEEN_RUNNING && FENCE_HOLDS) -> skip
    fi
}

/* The process is gone: what it had begun can't commit through it any more, and it knows nothing when it is back. */
inline crash()
{
    if
    :: holder == me && state == RUNNING -> holder_dead = true
    :: else -> skip
    fi;
    my_serial = 0; my_attempt = 0; phase = IDLE; executes[me] = false; promised[me] = false
}

proctype owner(byte me)
{
    byte my_serial, my_attempt;
    mtype phase = IDLE;
end:
    do
    :: atomic { phase == IDLE -> claim(); check() }
    :: atomic { phase == EXECUTING -> phase = COMPLETING }
    :: atomic { phase == EXECUTING -> phase = RELEASING; executes[me] = false } /* it was not executed */
    :: atomic { phase == EXECUTING -> phase = LOSING }
    :: atomic { phase == EXECUTING -> extend(); check() }
    :: atomic { phase == COMPLETING -> settle(COMPLETING); check() }
    :: atomic { phase == RELEASING -> settle(RELEASING); check() }
    :: atomic { phase == LOSING -> settle(LOSING); check() }
    /* Once more, from the network or a confused caller: the claim was settled. */
    :: atomic { phase == IDLE && my_serial > 0 -> settle(COMPLETING); check() }
    :: atomic { phase == IDLE && my_serial > 0 -> settle(RELEASING); check() }
    :: atomic { phase != IDLE || my_serial > 0 -> crash(); check() }
    od
}

proctype clock()
{
end:
    do
    /* The lease of the one who holds the record. */
    :: atomic { SEEN_RUNNING -> lease = false; promised[holder] = false; check() }
    :: atomic { state == FINISHED -> removed(); known = NOTHING; check() } /* the retention is over */
    od
}

/* Recovery by whichever engine looks first, and the operator. */
proctype others()
{
end:
    do
    :: atomic { state == RUNNING && (holder_dead || !lease) ->
                state = UNKNOWN; lease = false; held = true; check() }                    /* abandoned */
    :: atomic { SEEN_UNKNOWN -> state = FINISHED; lease = false; held = false;
                answer = BY_HAND; known = BY_HAND; check() }                              /* resolve as done */
    :: atomic { SEEN_UNKNOWN -> removed(); check() }                                      /* as released */
    :: atomic { SEEN_UNKNOWN || state == FINISHED -> removed(); known = NOTHING; check() } /* forget */
    od
}

init
{
    atomic {
        if
        :: retry = false
        :: retry = true
        fi;
        byte i;
        for (i : 0 .. OWNERS - 1) { run owner(i) }
        run clock();
        run others()
    }
}
