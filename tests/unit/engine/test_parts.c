/* The parts a lane is made of: queue, timers, identity table, replay cache, owners. */
#include "unit/engine/harness.h"

#include "engine/identity_table.h"
#include "engine/owner.h"
#include "engine/replay_cache.h"
#include "engine/timers.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- queue --- */

#define PUSHERS 4
#define PUSHES  5000

struct pushed {
    struct queue_node node;
    int pusher;
    int number;
};

struct pusher {
    struct queue *queue;
    struct pushed *items;
    _Atomic(int) *first_pushes;
};

static void *push_all(void *arg)
{
    struct pusher *p = arg;
    for (int i = 0; i < PUSHES; i++) {
        if (queue_push(p->queue, &p->items[i].node)) {
            atomic_fetch_add(p->first_pushes, 1);
        }
    }
    return NULL;
}

static void queue_gives_everything_once_and_in_each_threads_order(void **state)
{
    (void)state;
    struct queue q;
    queue_init(&q);
    _Atomic(int) first_pushes = 0;
    struct pusher pushers[PUSHERS];
    pthread_t threads[PUSHERS];
    for (int p = 0; p < PUSHERS; p++) {
        pushers[p] = (struct pusher){&q, calloc(PUSHES, sizeof(struct pushed)), &first_pushes};
        for (int i = 0; i < PUSHES; i++) {
            pushers[p].items[i].pusher = p;
            pushers[p].items[i].number = i;
        }
        assert_int_equal(pthread_create(&threads[p], NULL, push_all, &pushers[p]), 0);
    }
    int next[PUSHERS] = {0};
    int takes = 0;
    for (int taken = 0; taken < PUSHERS * PUSHES;) {
        struct queue_node *node = queue_take(&q);
        takes += node != NULL;
        for (; node != NULL; node = node->next, taken++) {
            struct pushed *item = (struct pushed *)node;
            assert_int_equal(item->number, next[item->pusher]++);
        }
    }
    for (int p = 0; p < PUSHERS; p++) {
        pthread_join(threads[p], NULL);
        free(pushers[p].items);
    }
    assert_true(queue_empty(&q));
    assert_int_equal(first_pushes, takes); /* one wake-up for each time it became non-empty */
}

/* --- timers --- */

static void timers_fire_in_order_whatever_was_moved_and_canceled(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    struct timers t;
    struct timer timers[COUNT] = {0};
    timers_init(&t);
    assert_int_equal(timers_next(&t), TIMER_NEVER);
    assert_int_equal(timers_reserve(&t, COUNT), 0);
    unsigned seed = 7;
    for (size_t i = 0; i < COUNT; i++) {
        timers_set(&t, &timers[i], rand_r(&seed) % 1000);
    }
    for (size_t i = 0; i < COUNT; i += 3) {
        timers_set(&t, &timers[i], rand_r(&seed) % 1000);
    }
    size_t left = COUNT;
    for (size_t i = 0; i < COUNT; i += 5) {
        timers_cancel(&t, &timers[i]);
        timers_cancel(&t, &timers[i]); /* no error when it is not set */
        left--;
    }
    assert_null(timers_due(&t, -1));
    int64_t before = 0;
    for (struct timer *fired; (fired = timers_due(&t, 999)) != NULL; left--) {
        assert_true(fired->due_mono_ms >= before);
        assert_true((fired - timers) % 5 != 0);
        assert_int_equal(fired->place, 0);
        before = fired->due_mono_ms;
    }
    assert_int_equal(left, 0);
    timers_free(&t);
}

/* --- identity table --- */

static void identity_table_finds_what_was_added_while_it_grows(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct identity_table t;
    struct identity_node *nodes = calloc(COUNT, sizeof(*nodes));
    assert_int_equal(identity_table_init(&t), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(nodes[i].id.bytes, &i, sizeof i);
        identity_table_add(&t, &nodes[i]);
    }
    for (uint32_t i = 0; i < COUNT; i += 2) {
        identity_table_remove(&t, &nodes[i]);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(identity_table_find(&t, &nodes[i].id), i % 2 == 0 ? NULL : &nodes[i]);
    }
    assert_int_equal(t.count, COUNT / 2);
    identity_table_free(&t);
    free(nodes);
}

/* --- replay cache --- */

static struct identity identity_number(uint32_t n)
{
    struct identity id = {{0}};
    memcpy(id.bytes, &n, sizeof n);
    return id;
}

static void put(struct replay_cache *c, uint32_t n, size_t bytes, int64_t expires_ms)
{
    struct identity id = identity_number(n);
    struct record r = {.state = RECORD_DONE, .expires_ms = expires_ms};
    struct answer *a = answer_alloc(200, true, 0, bytes);
    assert_non_null(a);
    replay_cache_put(c, &id, &r, a, expires_ms);
    answer_drop(a);
}

static bool has(struct replay_cache *c, uint32_t n, int64_t now_ms)
{
    struct identity id = identity_number(n);
    return replay_cache_find(c, &id, now_ms) != NULL;
}

static void cache_drops_the_least_recently_used_first(void **state)
{
    (void)state;
    struct replay_cache c;
    assert_int_equal(replay_cache_init(&c, 10000), 0);
    for (uint32_t n = 0; n < 8; n++) {
        put(&c, n, 1000, 100);
    }
    assert_true(has(&c, 0, 1)); /* now the most recently used one */
    put(&c, 8, 1000, 100);
    put(&c, 9, 1000, 100);
    assert_true(has(&c, 0, 1));
    assert_false(has(&c, 1, 1));
    assert_true(c.bytes <= 10000);
    replay_cache_free(&c);
}

static void cache_keeps_nothing_large_or_expired_or_replaced(void **state)
{
    (void)state;
    struct replay_cache c;
    assert_int_equal(replay_cache_init(&c, 10000), 0);
    put(&c, 1, 1250, 100); /* with its head more than an eighth */
    assert_false(has(&c, 1, 1));
    put(&c, 2, 10, 100);
    assert_true(has(&c, 2, 99));
    assert_false(has(&c, 2, 100));
    assert_int_equal(c.bytes, 0);
    put(&c, 3, 10, 100);
    put(&c, 3, 10, 200);
    assert_true(has(&c, 3, 150));
    put(&c, 3, 5000, 300); /* too large: but the old one is no longer true */
    assert_false(has(&c, 3, 150));
    put(&c, 4, 10, 100);
    replay_cache_clear(&c);
    assert_false(has(&c, 4, 1));
    assert_int_equal(c.bytes, 0);
    replay_cache_free(&c);
}

/* --- owners --- */

/* The text with the value of one part replaced. */
static void with_part(char *out, size_t size, const char *text, const char *name, const char *value)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    at += strlen(name);
    const char *end = at + strcspn(at, " ");
    snprintf(out, size, "%.*s%s%s", (int)(at - text), text, value, end);
}

static enum owner_verdict judge_with(const char *text, const char *name, const char *value)
{
    char changed[512];
    with_part(changed, sizeof changed, text, name, value);
    return owner_judge(changed, true);
}

static void an_owner_is_dead_only_when_that_is_certain(void **state)
{
    (void)state;
    struct owner_self self;
    owner_enter(&self, 1700000000000);
    assert_true(strlen(self.text) <= LIMIT_OWNER_TEXT_BYTES_MAX);
    assert_int_equal(owner_judge(self.text, true), OWNER_ALIVE);
    assert_int_equal(owner_since_ms(self.text), 1700000000000);
    /* an engine that this process has closed */
    assert_int_equal(judge_with(self.text, "token=", "0123456789abcdef"), OWNER_DEAD);
    /* a process number that was given to another process since */
    char parent[32];
    snprintf(parent, sizeof parent, "%d", (int)getppid());
    assert_int_equal(judge_with(self.text, "pid=", parent), OWNER_DEAD);
    /* beyond what this process can see */
    assert_int_equal(judge_with(self.text, "host=", "elsewhere"), OWNER_UNSURE);
    assert_int_equal(judge_with(self.text, "machine=", "elsewhere"), OWNER_UNSURE);
    assert_int_equal(judge_with(self.text, "ns=", "1"), OWNER_UNSURE);
    assert_int_equal(owner_judge("something else", true), OWNER_UNSURE);
    assert_int_equal(owner_judge("", true), OWNER_UNSURE);
    owner_leave(&self);
    assert_int_equal(owner_judge(self.text, true), OWNER_DEAD);
}

static void another_boot_of_a_known_machine_is_dead(void **state)
{
    (void)state;
    struct owner_self self;
    owner_enter(&self, 1);
    bool machine_known = strstr(self.text, "machine=- ") == NULL;
    assert_int_equal(judge_with(self.text, "boot=", "anotherboot"),
                     machine_known ? OWNER_DEAD : OWNER_UNSURE);
    assert_int_equal(judge_with(self.text, "boot=", "-"), OWNER_UNSURE); /* which one, nobody knows */
    /* Where others may come from other hosts, this may be one made from the same image: same names, same pid. */
    char changed[512];
    with_part(changed, sizeof changed, self.text, "boot=", "anotherboot");
    assert_int_equal(owner_judge(changed, false), OWNER_UNSURE);
    assert_int_equal(owner_judge(self.text, false), OWNER_ALIVE);
    owner_leave(&self);
}

static void a_killed_process_is_dead_even_before_its_parent_has_noticed(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct owner_self self;
        owner_enter(&self, 1);
        ssize_t written = write(ends[1], self.text, sizeof self.text);
        (void)written;
        for (;;) {
            pause();
        }
    }
    char text[OWNER_TEXT_MAX];
    assert_int_equal(read(ends[0], text, sizeof text), sizeof text);
    assert_int_equal(owner_judge(text, true), OWNER_ALIVE);
    kill(child, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0); /* stays a zombie */
    assert_int_equal(owner_judge(text, true), OWNER_DEAD);
    waitpid(child, NULL, 0);
    assert_int_equal(owner_judge(text, true), OWNER_DEAD);
    close(ends[0]);
    close(ends[1]);
}

static void a_process_that_may_not_be_signalled_is_not_dead(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("needs root: nobody else can become another user\n");
        skip();
    }
    struct owner_self self;
    owner_enter(&self, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0) {
            _exit(2);
        }
        _exit(owner_judge(self.text, true) == OWNER_DEAD);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    owner_leave(&self);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void *pause_for_ever(void *arg)
{
    (void)arg;
    for (;;) {
        pause();
    }
    return NULL;
}

/* The state of a process as ps shows it. */
static char process_state(pid_t pid)
{
    char path[64];
    char text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) {
        fclose(f);
    }
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : '?';
}

/* It looks like a zombie, and works. */
static void a_process_whose_first_thread_has_ended_is_alive(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct owner_self self;
        pthread_t thread;
        owner_enter(&self, 1);
        if (pthread_create(&thread, NULL, pause_for_ever, NULL) != 0 ||
            write(ends[1], self.text, sizeof self.text) != sizeof self.text) {
            _exit(1);
        }
        pthread_exit(NULL);
    }
    char text[OWNER_TEXT_MAX];
    ssize_t got = read(ends[0], text, sizeof text);
    char seen = '?';
    for (int ms = 0; ms < 60000 && (seen = process_state(child)) != 'Z'; ms++) {
        usleep(1000);
    }
    enum owner_verdict verdict = owner_judge(text, true);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(got, sizeof text);
    assert_int_equal(seen, 'Z');
    assert_int_equal(verdict, OWNER_ALIVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_gives_everything_once_and_in_each_threads_order),
        cmocka_unit_test(timers_fire_in_order_whatever_was_moved_and_canceled),
        cmocka_unit_test(identity_table_finds_what_was_added_while_it_grows),
        cmocka_unit_test(cache_drops_the_least_recently_used_first),
        cmocka_unit_test(cache_keeps_nothing_large_or_expired_or_replaced),
        cmocka_unit_test(an_owner_is_dead_only_when_that_is_certain),
        cmocka_unit_test(another_boot_of_a_known_machine_is_dead),
        cmocka_unit_test(a_killed_process_is_dead_even_before_its_parent_has_noticed),
        cmocka_unit_test(a_process_that_may_not_be_signalled_is_not_dead),
        cmocka_unit_test(a_process_whose_first_thread_has_ended_is_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
