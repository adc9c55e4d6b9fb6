/* `hapax bench`: how fast the library is on this machine and disk. Which store it uses, and what it prints.
 *
 * It leaves nothing behind that it made: a store that was not there before is removed again, and one that was there
 * is used only when --existing asks for it. */
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/secret.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/stores.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PATH_BYTES_MAX   4096
#define KEYS_MAX         1000000000ULL
#define RECORD_BYTES     512ULL         /* of a record without its answer, generously */
#define FILE_BYTES_MAX   (256ULL << 30) /* what the records of one run may take at most */
#define MEMORY_BYTES_MAX (4ULL << 30)
#define TTL_MS           (24LL * 3600 * 1000)
#define TTL_EXISTING_MS  (3600LL * 1000) /* records in somebody's store go soon */
#define SYNC_TIMES       200
#define SYNC_US_MAX      1000000 /* of all of them */
#define SYNC_BYTES       4096
#define FACT_BYTES_MAX   128

/* --- the store ----------------------------------------------------------------------------------- */

struct place {
    char uri[PATH_BYTES_MAX + 16];
    char shown[PATH_BYTES_MAX + 16]; /* without a password */
    char path[PATH_BYTES_MAX];       /* of the file; "" for a store without one */
    char folder[PATH_BYTES_MAX];     /* made for it and removed with it; "": none */
    const char *durability;
    bool on_disk; /* records may be as many as fit there */
    bool removed_after;
};

static void remove_with(const char *path, const char *ending)
{
    char name[PATH_BYTES_MAX + 8];
    snprintf(name, sizeof name, "%s%s", path, ending);
    unlink(name);
}

static void leave_place(const struct place *p)
{
    if (p->removed_after) {
        remove_with(p->path, "");
        remove_with(p->path, "-wal");
        remove_with(p->path, "-shm");
    }
    if (p->folder[0] != '\0') {
        rmdir(p->folder);
    }
}

static void describe_file(struct place *p)
{
    p->durability = "SQLite WAL, synchronous=FULL: each claim and each answer is synced";
    p->on_disk = true;
}

static bool is_server(const char *uri)
{
    return strstr(uri, "postgresql://") != NULL || strstr(uri, "postgres://") != NULL;
}

/* Tables on a server are never removed from here: another program may have begun to use them meanwhile. */
static int take_server(struct place *p, const struct cli_args *args)
{
    if (!cli_flag(args, "existing")) {
        output_message(args->command, "records would be added to the tables of that database: "
                                      "name a database of its own for it, and say --existing");
        return CLI_CONFLICT;
    }
    p->durability = "PostgreSQL, synchronous commits: each claim and each answer is in its log";
    p->on_disk = true;
    return CLI_OK;
}

static int take_temporary(struct place *p, const struct cli_args *args)
{
    const char *dir = cli_given(args, "dir") ? cli_text(args, "dir") : ".";
    int n = snprintf(p->folder, sizeof p->folder, "%s/hapax-bench-XXXXXX", dir);
    if (n < 0 || (size_t)n + sizeof "/bench.db" > sizeof p->path) {
        return output_usage(args->command, "--dir is too long");
    }
    if (mkdtemp(p->folder) == NULL) {
        p->folder[0] = '\0';
        output_message(args->command, "can't make a folder in %s: %s; name another with --dir", dir,
                       strerror(errno));
        return CLI_FAILED;
    }
    snprintf(p->path, sizeof p->path, "%.*s/bench.db", (int)sizeof p->path - 16, p->folder);
    snprintf(p->uri, sizeof p->uri, "sqlite:%s", p->path);
    describe_file(p);
    p->removed_after = true;
    return CLI_OK;
}

static int take_named(struct place *p, const struct cli_args *args, const char *uri)
{
    const char *path = stores_path(uri);
    if (cli_given(args, "dir")) {
        return output_usage(args->command, "--dir is for the temporary store: leave it out beside --store");
    }
    if (strlen(uri) >= sizeof p->uri || (path != NULL && strlen(path) >= sizeof p->path)) {
        return output_usage(args->command, "--store is too long");
    }
    snprintf(p->uri, sizeof p->uri, "%s", uri);
    if (is_server(uri)) {
        return take_server(p, args);
    }
    if (path == NULL) {
        p->durability = "none: the store is memory";
        return CLI_OK;
    }
    describe_file(p);
    snprintf(p->path, sizeof p->path, "%s", path);
    struct stat status;
    bool there = lstat(path, &status) == 0;
    if (there && !cli_flag(args, "existing")) {
        output_message(
            args->command,
            "%s exists already, and records would be added to it: name a new file, or say --existing", path);
        return CLI_CONFLICT;
    }
    p->removed_after = !there;
    return CLI_OK;
}

static int take_place(struct place *p, const struct cli_args *args)
{
    memset(p, 0, sizeof *p);
    const char *uri = cli_text(args, "store");
    int rc;
    if (uri != NULL) {
        rc = take_named(p, args, uri);
    } else if (cli_flag(args, "existing")) {
        rc = output_usage(args->command, "--existing goes with --store, which names the store");
    } else {
        rc = take_temporary(p, args);
    }
    secret_show_uri(p->shown, sizeof p->shown, p->uri);
    return rc;
}

/* --- facts --------------------------------------------------------------------------------------- */

struct facts {
    char cpu[FACT_BYTES_MAX];
    long cores;
    uint64_t memory_mib;
    struct utsname system;
    int64_t sync_us; /* median of fdatasync after an append; -1: no disk of ours, or not measured */
};

static void read_cpu(char *out)
{
    snprintf(out, FACT_BYTES_MAX, "unknown processor");
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) == 0 && colon != NULL) {
            struct slice name = slice_trim(slice_text(colon + 1));
            name.len -= name.len > 0 && name.ptr[name.len - 1] == '\n';
            snprintf(out, FACT_BYTES_MAX, "%.*s", SLICE_FORMAT(name));
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* What one commit costs at least: the median time of fdatasync after an append. Of fewer on a slow disk. */
static int64_t time_syncs(int fd)
{
    static const char bytes[SYNC_BYTES];
    int64_t times[SYNC_TIMES];
    size_t n = 0;
    for (int64_t spent_us = 0; n < SYNC_TIMES && spent_us < SYNC_US_MAX; n++) {
        if (write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes) {
            return -1;
        }
        int64_t start = clock_mono_us();
        if (fdatasync(fd) != 0) {
            return -1;
        }
        times[n] = clock_mono_us() - start;
        spent_us += times[n];
    }
    qsort(times, n, sizeof *times, compare_times);
    return times[n / 2];
}

static int64_t time_disk(const char *path)
{
    char name[PATH_BYTES_MAX + 16];
    snprintf(name, sizeof name, "%s-sync-XXXXXX", path);
    int fd = path[0] != '\0' ? mkostemp(name, O_CLOEXEC) : -1;
    if (fd < 0) {
        return -1;
    }
    int64_t us = time_syncs(fd);
    close(fd);
    unlink(name);
    return us;
}

static void read_facts(struct facts *f, const struct place *p)
{
    memset(f, 0, sizeof *f);
    read_cpu(f->cpu);
    f->cores = sysconf(_SC_NPROCESSORS_ONLN);
    f->memory_mib = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
    uname(&f->system);
    f->sync_us = time_disk(p->path);
}

/* --- the report ---------------------------------------------------------------------------------- */

static double per_second(uint64_t count, const struct bench_found *f)
{
    return f->elapsed_us > 0 ? (double)count * 1e6 / (double)f->elapsed_us : 0;
}

static double ratio(uint64_t a, uint64_t b)
{
    return b > 0 ? (double)a / (double)b : 0;
}

static json_t *json_times(const struct histogram *h)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)h->total, "p50",
                     (json_int_t)histogram_percentile(h, 50), "p99", (json_int_t)histogram_percentile(h, 99),
                     "max", (json_int_t)h->most_us);
}

static int report_json(const struct cli_args *args, const struct bench_plan *plan, const struct place *place,
                       const struct facts *facts, const struct bench_found *f)
{
    json_t *machine =
        json_pack("{s:o, s:I, s:I, s:s, s:s}", "cpu", output_json_text(slice_text(facts->cpu)), "cores",
                  (json_int_t)facts->cores, "memory_mib", (json_int_t)facts->memory_mib, "system",
                  facts->system.sysname, "release", facts->system.release);
    json_t *sync = facts->sync_us >= 0 ? json_integer(facts->sync_us) : json_null();
    bool ours = !is_server(place->uri); /* what a server writes, only the server knows */
    json_t *written = ours ? json_real(ratio(f->written_bytes, f->pair.total)) : json_null();
    json_t *setting = json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "store", output_json_text(slice_text(place->shown)),
        "durability", place->durability, "lanes", (json_int_t)f->lanes, "threads", (json_int_t)plan->threads,
        "keys_before", (json_int_t)plan->keys_before, "repeats_percent", (json_int_t)plan->repeats,
        "body_bytes", (json_int_t)plan->body_bytes, "seconds", (json_int_t)plan->seconds);
    json_t *times =
        json_pack("{s:o, s:o, s:o, s:o}", "claim", json_times(&f->claim), "complete",
                  json_times(&f->complete), "pair", json_times(&f->pair), "replay", json_times(&f->replay));
    return output_json(args->command, json_pack("{s:o, s:o, s:o, s:f, s:b, s:f, s:f, s:f, s:o, s:o}",
                                                "machine", machine, "fdatasync_us", sync, "setting", setting,
                                                "elapsed_s", (double)f->elapsed_us / 1e6, "interrupted",
                                                f->interrupted, "pairs_per_s", per_second(f->pair.total, f),
                                                "replays_per_s", per_second(f->replay.total, f),
                                                "batch_operations", ratio(f->batch_ops, f->batches),
                                                "written_bytes_per_pair", written, "us", times));
}

static int add_times(struct output_table *t, const char *name, const struct histogram *h)
{
    char text[32];
    int64_t values[] = {histogram_percentile(h, 50), histogram_percentile(h, 99), h->most_us};
    int rc = output_table_cell(t, slice_text(name), STYLE_PLAIN);
    for (size_t i = 0; rc == 0 && i < sizeof values / sizeof *values; i++) {
        snprintf(text, sizeof text, "%.3f", (double)values[i] / 1000);
        rc = output_table_cell(t, slice_text(text), STYLE_PLAIN);
    }
    return rc;
}

static int report_times(const struct bench_found *f)
{
    static const char *const titles[] = {"CALL", "P50 MS", "P99 MS", "MAX MS"};
    struct output_table t;
    output_table_init(&t, titles, sizeof titles / sizeof *titles);
    int rc = add_times(&t, "claim", &f->claim);
    rc = rc != 0 ? rc : add_times(&t, "complete", &f->complete);
    rc = rc != 0 ? rc : add_times(&t, "pair", &f->pair);
    if (rc == 0 && f->replay.total > 0) {
        rc = add_times(&t, "replay", &f->replay);
    }
    output_table_flush(&t);
    output_table_free(&t);
    return rc;
}

static int report_text(const struct bench_plan *plan, const struct place *place, const struct facts *facts,
                       const struct bench_found *f)
{
    int rc =
        output_field("machine", "%s, %ld cores, %llu MiB, %s %s", facts->cpu, facts->cores,
                     (unsigned long long)facts->memory_mib, facts->system.sysname, facts->system.release);
    rc = rc != 0
             ? rc
             : output_field("store", "%s%s", place->shown, place->removed_after ? " (removed again)" : "");
    rc = rc != 0 ? rc : output_field("durability", "%s", place->durability);
    if (rc == 0 && facts->sync_us >= 0) {
        rc = output_field("fdatasync", "%.3f ms (median, after an append of %d bytes)",
                          (double)facts->sync_us / 1000, SYNC_BYTES);
    }
    rc = rc != 0 ? rc
                 : output_field("load", "%u threads, %.1f s, %u %% repeats, %zu bytes, %llu keys before",
                                plan->threads, (double)f->elapsed_us / 1e6, plan->repeats, plan->body_bytes,
                                (unsigned long long)plan->keys_before);
    rc = rc != 0 ? rc : output_field("pairs/s", "%.0f", per_second(f->pair.total, f));
    if (rc == 0 && plan->repeats > 0) {
        rc = output_field("replays/s", "%.0f", per_second(f->replay.total, f));
    }
    rc = rc != 0
             ? rc
             : output_field("batch", "%.1f operations, %u lanes", ratio(f->batch_ops, f->batches), f->lanes);
    if (rc == 0 && !is_server(place->uri)) {
        rc = output_field("written", "%.0f bytes a pair", ratio(f->written_bytes, f->pair.total));
    }
    return rc != 0 ? rc : report_times(f);
}

/* --- the command --------------------------------------------------------------------------------- */

static int read_plan(struct bench_plan *plan, const struct cli_args *args, const struct place *place)
{
    *plan = (struct bench_plan){.uri = place->uri,
                                .seconds = cli_number(args, "seconds", 0),
                                .threads = (unsigned)cli_number(args, "threads", 0),
                                .keys_before = cli_number(args, "keys-before", 0),
                                .repeats = (unsigned)cli_number(args, "repeats", 0),
                                .body_bytes = (size_t)cli_number(args, "body", 0),
                                .ttl_ms = cli_flag(args, "existing") ? TTL_EXISTING_MS : TTL_MS,
                                .progress = isatty(STDERR_FILENO)};
    uint64_t room = place->on_disk ? FILE_BYTES_MAX : MEMORY_BYTES_MAX;
    plan->records_max = room / (RECORD_BYTES + plan->body_bytes);
    if (plan->keys_before >= plan->records_max) {
        return output_usage(
            args->command, "--keys-before: with %zu bytes each at most %llu fit into %llu GiB",
            plan->body_bytes, (unsigned long long)plan->records_max - 1, (unsigned long long)room >> 30);
    }
    return CLI_OK;
}

static int measure(const struct cli_args *args, const struct place *place)
{
    struct bench_plan plan;
    int rc = read_plan(&plan, args, place);
    if (rc != CLI_OK) {
        return rc;
    }
    struct facts facts;
    read_facts(&facts, place);
    struct bench_found found;
    hapax_error err = {0};
    int code = bench_run(&found, &plan, &err);
    if (code != 0) {
        return output_error(args->command, &err);
    }
    if (found.elapsed_us == 0) {
        output_message(args->command, "stopped while it made the keys before: nothing was measured");
        return CLI_FAILED;
    }
    if (found.interrupted) {
        output_message(args->command, "stopped after %.1f s", (double)found.elapsed_us / 1e6);
    }
    if (found.full) {
        output_message(args->command, "ended early, at its limit of %llu records",
                       (unsigned long long)plan.records_max);
    }
    if (cli_flag(args, "json")) {
        return report_json(args, &plan, place, &facts, &found);
    }
    return report_text(&plan, place, &facts, &found) == 0 ? CLI_OK : output_no_memory(args->command);
}

static int run(const struct cli_args *args)
{
    struct place *place = malloc(sizeof *place);
    if (place == NULL) {
        return output_no_memory(args->command);
    }
    store_tune_process();
    bench_watch_signals(); /* before anything is made that must be removed */
    int rc = take_place(place, args);
    if (rc == CLI_OK) {
        rc = measure(args, place);
        leave_place(place);
    }
    free(place);
    return rc;
}

static const struct cli_option options[] = {
    {.name = "store",
     .letter = 's',
     .kind = CLI_TEXT,
     .value = "URI",
     .help = "the store, sqlite:PATH, memory: or postgresql://...; a file that is not there yet is removed "
             "again, a database needs --existing. Default: a temporary SQLite file in --dir"},
    {.name = "existing",
     .kind = CLI_FLAG,
     .help = "use --store although it exists; what is added to it expires after an hour"},
    {.name = "dir",
     .letter = 'd',
     .kind = CLI_DIRECTORY,
     .value = "DIR",
     .help = "where the temporary store is made: its disk is what is measured. Default: the current folder"},
    {.name = "seconds",
     .letter = 'n',
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = 86400,
     .standard = "5",
     .help = "how long"},
    {.name = "threads",
     .letter = 't',
     .kind = CLI_NUMBER,
     .value = "N",
     .least = 1,
     .most = BENCH_THREADS_MAX,
     .standard = "64",
     .help = "callers at a time"},
    {.name = "keys-before",
     .letter = 'k',
     .kind = CLI_NUMBER,
     .value = "N",
     .most = KEYS_MAX,
     .standard = "0",
     .help = "live keys that the store is filled with first"},
    {.name = "repeats",
     .letter = 'r',
     .kind = CLI_NUMBER,
     .value = "PERCENT",
     .most = 100,
     .standard = "0",
     .help = "share of calls that repeat a key that is done and get its answer"},
    {.name = "body",
     .letter = 'b',
     .kind = CLI_NUMBER,
     .value = "BYTES",
     .most = HAPAX_ANSWER_BYTES_MAX,
     .standard = "200",
     .help = "size of what is asked for and of the answer"},
    CLI_OPTION_JSON,
    {0},
};

static const struct cli_example examples[] = {
    {"On the disk of this directory", "hapax bench"},
    {"On another disk, with a million live keys", "hapax bench --dir /var/lib/hapax --keys-before 1000000"},
    {"Without a disk: what the engine alone can do", "hapax bench --store memory:"},
    {"For a script", "hapax bench --seconds 2 --json"},
    {0},
};

const struct cli_command cmd_bench = {
    .name = "bench",
    .summary = "measure claims and answers on this machine",
    .description = "Claims and completes operations from many threads through the library, as a program that "
                   "embeds it would, "
                   "and prints how many pairs of claim and answer a second became durable, how long the "
                   "calls took, how many "
                   "operations shared a commit and how much was written. The disk's own time for fdatasync "
                   "stands beside it.\n\n"
                   "It measures nothing else: neither HTTP nor an upstream. What it made, it removes; a "
                   "store that exists is "
                   "left alone unless --existing is given. Ctrl-C ends it early, and what was measured until "
                   "then is printed.",
    .options = options,
    .examples = examples,
    .run = run,
};
