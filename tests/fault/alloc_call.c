/* hapax_call() with each of its allocations failing in turn, in a memory store and a SQLite file, against a server in a
 * process of its own, which answers 503 to the first request for a target and 201 with the key to later ones.
 *
 * What must hold: whatever a call came to, the next one, with memory, ends with the server's answer; and the server has
 * seen one key only. */
#include "alloc.h"
#include "hapax/client.h"
#include "sweep.h"

#include "net/loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST_BYTES_MAX = 4096, TEXT_BYTES = 64 };

/* --- the server --- */

/* A whole head; the request has no body. */
static bool read_request(int fd, char *text)
{
    size_t len = 0;
    while (len < REQUEST_BYTES_MAX - 1) {
        ssize_t n = read(fd, text + len, REQUEST_BYTES_MAX - 1 - len);
        if (n <= 0) {
            return false;
        }
        len += (size_t)n;
        text[len] = '\0';
        if (strstr(text, "\r\n\r\n") != NULL) {
            return true;
        }
    }
    return false;
}

static void cut(char out[TEXT_BYTES], const char *text, const char *after, char end)
{
    const char *at = strstr(text, after);
    size_t n = at != NULL ? strcspn(at + strlen(after), (char[]){end, '\0'}) : 0;
    snprintf(out, TEXT_BYTES, "%.*s", (int)n, at != NULL ? at + strlen(after) : "");
}

static void serve(int listener)
{
    static char request[REQUEST_BYTES_MAX];
    char seen_target[TEXT_BYTES] = "";
    char seen_key[TEXT_BYTES] = "";
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && read_request(fd, request)) {
            char target[TEXT_BYTES];
            char key[TEXT_BYTES];
            char answer[256];
            cut(target, request, "POST ", ' ');
            cut(key, request, "Idempotency-Key: ", '\r');
            bool first = strcmp(target, seen_target) != 0;
            bool same = strcmp(key, seen_key) == 0;
            snprintf(answer, sizeof answer, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n%s",
                     first  ? 503
                     : same ? 201
                            : 500,
                     strlen(key), key);
            (void)!write(fd, answer, strlen(answer));
            if (first) {
                memcpy(seen_target, target, sizeof target);
                memcpy(seen_key, key, sizeof key);
            }
        }
        close(fd);
    }
}

static pid_t start_server(uint16_t *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 64) == 0);
    MUST(getsockname(listener, (struct sockaddr *)&a, &len) == 0);
    *port = ntohs(a.sin_port);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener);
    }
    close(listener);
    return pid;
}

/* --- a run --- */

struct trial {
    const char *path; /* NULL: in memory */
    char uri[192];
    uint16_t port;
    unsigned runs;
};

static int call(hapax *h, const char *url, hapax_call_result **out, hapax_error *err)
{
    const hapax_call_header headers[] = {{"X-A", "1"}};
    hapax_call_request r = {.size = sizeof r,
                            .method = "POST",
                            .url = url,
                            .headers = headers,
                            .header_count = 1,
                            .op = "the op",
                            .backoff_ms = 1,
                            .attempts_max = 3};
    return hapax_call(h, &r, out, err);
}

static void check_answer(const hapax_call_result *r)
{
    CHECK(r->status == 201, "status %d", r->status);
    CHECK(r->key != NULL && strcmp(r->key, r->body) == 0, "the key is not the one that was sent");
}

static void run_call(void *ctx)
{
    struct trial *t = ctx;
    char url[96];
    hapax *h = NULL;
    hapax_error err = {0};
    hapax_call_result *result = NULL;
    snprintf(url, sizeof url, "http://127.0.0.1:%u/%u", t->port, t->runs++);
    hapax *onlooker = NULL; /* keeps a store in memory alive */
    MUST(hapax_open(&onlooker, t->uri, NULL, &err) == 0 && hapax_open(&h, t->uri, NULL, &err) == 0);

    sweep_arm();
    int code = call(h, url, &result, &err);
    sweep_disarm();
    CHECK((code == 0) == (result != NULL), "a result, or an error");
    CHECK(code == 0 || code == HAPAX_E_MEMORY || code == HAPAX_E_SYSTEM, "%s: %s", hapax_error_name(code),
          err.message);
    if (result != NULL && result->end == HAPAX_CALL_END_ANSWERED) {
        check_answer(result);
    } else if (result != NULL) {
        CHECK(result->end == HAPAX_CALL_END_NOT_DONE || result->end == HAPAX_CALL_END_UNKNOWN, "it ended %s",
              hapax_call_end_name(result->end));
    }
    hapax_call_free(result);
    hapax_close(h); /* a claim that could not be ended is unknown now */
    MUST(hapax_open(&h, t->uri, NULL, &err) == 0);

    /* The first run for a target that never reached the server leaves its 503 to this one. */
    code = call(h, url, &result, &err);
    CHECK(code == 0, "again: %s", err.message);
    if (code == 0) {
        CHECK(result->end == HAPAX_CALL_END_ANSWERED || result->end == HAPAX_CALL_END_REPLAYED,
              "again: it ended %s", hapax_call_end_name(result->end));
        check_answer(result);
    }
    hapax_call_free(result);
    hapax_close(h);
    hapax_close(onlooker);
    if (t->path != NULL) {
        sweep_remove(t->path);
    }
}

int main(int argc, char **argv)
{
    static const struct injector injector = {"allocation", alloc_arm, alloc_disarm, alloc_seen};
    struct trial memory = {.uri = "memory:swept"};
    struct trial sqlite = {0};
    char path[160];
    hapax_error err;
    pid_t server = start_server(&memory.port);
    sqlite.port = memory.port;
    sqlite.runs = 1000000; /* targets of its own */
    MUST(net_global_init(&err) == 0);
    sweep_begin(argc, argv, &injector);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* what SQLite takes from its own reserve can't fail */
    snprintf(path, sizeof path, "%s/call.db", sweep_folder());
    snprintf(sqlite.uri, sizeof sqlite.uri, "sqlite:%s", path);
    sqlite.path = path;
    sweep("call, memory", run_call, &memory);
    sweep("call, sqlite", run_call, &sqlite);
    int code = sweep_end();
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return code;
}
