#include "engine/owner.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define NAME_MAX_BYTES 48
#define ID_MAX_BYTES   32

/* What a text says; absent parts are empty or 0. */
struct owner_parts {
    char host[NAME_MAX_BYTES + 1];
    char machine[ID_MAX_BYTES + 1];
    char boot[ID_MAX_BYTES + 1];
    uint64_t pid_namespace;
    int pid;
    uint64_t start; /* clock ticks since boot */
    int64_t since_ms;
    uint64_t token;
};

/* The engines of this process: a process that lives may still have lost an engine. */
static pthread_mutex_t living_lock = PTHREAD_MUTEX_INITIALIZER;
static struct owner_self *living;

/* The beginning of a small file as a string; false: there is nothing to read. Without stdio, which wants memory: who
 * lives must not depend on that. */
static bool read_file(char *out, size_t size, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The first line of a small file, without blanks, dashes and control characters; "-" when it can't be read. */
static void read_word(char *out, size_t size, const char *path)
{
    size_t length = 0;
    char line[256];
    bool there = read_file(line, sizeof line, path);
    for (const char *c = line; there && *c != '\0' && *c != '\n' && length + 1 < size; c++) {
        if (isalnum((unsigned char)*c)) {
            out[length++] = *c;
        }
    }
    if (length == 0) {
        out[length++] = '-';
    }
    out[length] = '\0';
}

static void read_host(char *out, size_t size)
{
    if (gethostname(out, size) != 0) {
        snprintf(out, size, "-");
    }
    out[size - 1] = '\0'; /* a longer name may come back without its end */
    for (char *c = out; *c != '\0'; c++) {
        *c = isgraph((unsigned char)*c) ? *c : '?';
    }
    if (out[0] == '\0') {
        snprintf(out, size, "-");
    }
}

/* State, number of threads and start of a process. False when there is nothing to read. */
static bool read_process(int pid, char *state, long *threads, uint64_t *start)
{
    char path[64];
    char line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!read_file(line, sizeof line, path)) {
        return false;
    }
    /* The name in parentheses may itself hold blanks and parentheses: count from the last one. Then come
     * field 3 (state), 20 (threads) and 22 (start). */
    const char *rest = strrchr(line, ')');
    return rest != NULL && sscanf(rest + 1,
                                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                  "%ld %*s %" SCNu64,
                                  state, threads, start) == 3;
}

static void describe_self(struct owner_parts *p)
{
    *p = (struct owner_parts){.pid = (int)getpid()};
    read_host(p->host, sizeof p->host);
    read_word(p->machine, sizeof p->machine, "/etc/machine-id");
    read_word(p->boot, sizeof p->boot, "/proc/sys/kernel/random/boot_id");
    struct stat ns;
    p->pid_namespace = stat("/proc/self/ns/pid", &ns) == 0 ? (uint64_t)ns.st_ino : 0;
    char state;
    long threads;
    if (!read_process(p->pid, &state, &threads, &p->start)) {
        p->start = 0;
    }
}

static bool parse(struct owner_parts *p, const char *text)
{
    *p = (struct owner_parts){0};
    return sscanf(text,
                  "host=%48s machine=%32s boot=%32s ns=%" SCNu64 " pid=%d start=%" SCNu64 " since=%" SCNd64
                  " token=%" SCNx64,
                  p->host, p->machine, p->boot, &p->pid_namespace, &p->pid, &p->start, &p->since_ms,
                  &p->token) == 8 &&
           p->pid > 0;
}

void owner_enter(struct owner_self *self, int64_t wall_ms)
{
    struct owner_parts p;
    describe_self(&p);
    if (getrandom(&self->token, sizeof self->token, 0) != (ssize_t)sizeof self->token) {
        self->token = (uint64_t)(uintptr_t)self ^ ((uint64_t)wall_ms << 20);
    }
    snprintf(self->text, sizeof self->text,
             "host=%s machine=%s boot=%s ns=%" PRIu64 " pid=%d start=%" PRIu64 " since=%" PRId64
             " token=%016" PRIx64,
             p.host, p.machine, p.boot, p.pid_namespace, p.pid, p.start, wall_ms, self->token);
    pthread_mutex_lock(&living_lock);
    self->next = living;
    living = self;
    pthread_mutex_unlock(&living_lock);
}

void owner_leave(struct owner_self *self)
{
    pthread_mutex_lock(&living_lock);
    struct owner_self **at = &living;
    while (*at != NULL && *at != self) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = self->next;
    }
    pthread_mutex_unlock(&living_lock);
}

static bool lives_here(uint64_t token)
{
    pthread_mutex_lock(&living_lock);
    struct owner_self *o = living;
    while (o != NULL && o->token != token) {
        o = o->next;
    }
    pthread_mutex_unlock(&living_lock);
    return o != NULL;
}

static enum owner_verdict judge_process(const struct owner_parts *o)
{
    char state;
    long threads;
    uint64_t start;
    if (kill(o->pid, 0) != 0 && errno == ESRCH) {
        return OWNER_DEAD;
    }
    if (!read_process(o->pid, &state, &threads, &start)) {
        return OWNER_UNSURE; /* /proc may hide other users' processes */
    }
    if (o->start != 0 && start != o->start) {
        return OWNER_DEAD; /* the number was given to another process */
    }
    /* Z with more than one thread: only the first thread has ended. */
    return (state == 'Z' || state == 'X') && threads <= 1 ? OWNER_DEAD : OWNER_ALIVE;
}

enum owner_verdict owner_judge(const char *text, bool one_host)
{
    struct owner_parts o;
    struct owner_parts self;
    describe_self(&self);
    if (!parse(&o, text) || strcmp(o.host, self.host) != 0 || strcmp(o.machine, self.machine) != 0 ||
        strcmp(o.boot, "-") == 0 || strcmp(self.boot, "-") == 0) {
        return OWNER_UNSURE;
    }
    if (strcmp(o.boot, self.boot) != 0) {
        /* This host was started anew since. Without a machine id it may be another one of the same name. */
        return one_host && strcmp(o.machine, "-") != 0 ? OWNER_DEAD : OWNER_UNSURE;
    }
    if (o.pid_namespace != self.pid_namespace || o.pid_namespace == 0) {
        return OWNER_UNSURE; /* another container: its process numbers mean nothing here */
    }
    if (o.pid == self.pid && o.start == self.start) {
        return lives_here(o.token) ? OWNER_ALIVE : OWNER_DEAD;
    }
    return judge_process(&o);
}

int64_t owner_since_ms(const char *text)
{
    struct owner_parts p;
    return parse(&p, text) ? p.since_ms : 0;
}
