/* A shell in a process group of its own, so that a time-out ends all of it. Output is read while the shell lives and
 * once more when it has ended; the end of the pipe is not waited for, since a server that was left in the background
 * keeps it open. */
#include "drill/command.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS_FIRST 1
#define POLL_MS_MAX   20

/* In a group of its own, with the signals as usual. 0 or an errno. */
static int spawn_shell(pid_t *pid, const char *command, int output)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL}; /* not written to */
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t usual;
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    int rc = posix_spawn_file_actions_init(&files);
    if (rc != 0) {
        return rc;
    }
    rc = posix_spawnattr_init(&how);
    if (rc == 0) {
        rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        rc = rc != 0 ? rc : posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
        rc = rc != 0 ? rc : posix_spawnattr_setpgroup(&how, 0);
        rc = rc != 0 ? rc : posix_spawnattr_setsigdefault(&how, &usual);
        rc = rc != 0 ? rc : posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
        rc = rc != 0 ? rc : posix_spawn(pid, "/bin/sh", &files, &how, argv, environ);
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* What is there. false: the pipe has ended, and is not to be waited for any more. */
static bool read_output(int from, struct buf *out)
{
    char bytes[1024];
    ssize_t n = read(from, bytes, sizeof bytes);
    while (n > 0) {
        size_t room = out->len_max - out->len;
        (void)buf_append(out, bytes, (size_t)n < room ? (size_t)n : room);
        n = read(from, bytes, sizeof bytes);
    }
    return n < 0;
}

/* Commands hold passwords, and messages get into reports: none shows a command. */
static int verdict(int status, hapax_error *err)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    if (WIFEXITED(status)) {
        return error_set(err, HAPAX_E_SYSTEM, 0, "a command ended with exit code %d", WEXITSTATUS(status));
    }
    return error_set(err, HAPAX_E_SYSTEM, 0, "a command was ended by signal %d", WTERMSIG(status));
}

static int await(pid_t pid, int from, struct buf *out, int64_t timeout_ms, const volatile sig_atomic_t *stop,
                 hapax_error *err)
{
    int64_t end = clock_mono_ms() + timeout_ms;
    int wait_ms = POLL_MS_FIRST;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        bool stopped = stop != NULL && *stop != 0;
        if (stopped || clock_mono_ms() >= end) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            return stopped ? error_set(err, HAPAX_E_CANCELED, 0, "interrupted")
                           : error_set(err, HAPAX_E_TIMEOUT, 0, "a command took too long");
        }
        struct pollfd pipe_end = {.fd = from, .events = POLLIN};
        poll(&pipe_end, 1, wait_ms);
        if (from >= 0 && !read_output(from, out)) {
            from = -1; /* poll() passes it over */
        }
        wait_ms = wait_ms * 2 < POLL_MS_MAX ? wait_ms * 2 : POLL_MS_MAX;
    }
    if (from >= 0) {
        (void)read_output(from, out);
    }
    return verdict(status, err);
}

static int start(pid_t *out, const char *command, int output, hapax_error *err)
{
    int why = spawn_shell(out, command, output);
    return why != 0 ? error_set(err, HAPAX_E_SYSTEM, why, "can't start a command: %s", strerror(why)) : 0;
}

int command_start(pid_t *out, const char *command, hapax_error *err)
{
    return start(out, command, STDERR_FILENO, err);
}

int command_wait(pid_t pid, int64_t timeout_ms, const volatile sig_atomic_t *stop, hapax_error *err)
{
    return await(pid, -1, NULL, timeout_ms, stop, err);
}

int command_run(const char *command, struct buf *out, int64_t timeout_ms, const volatile sig_atomic_t *stop,
                hapax_error *err)
{
    int ends[2] = {-1, -1};
    if (out != NULL && pipe2(ends, O_CLOEXEC) != 0) {
        return error_set(err, HAPAX_E_SYSTEM, errno, "can't make a pipe: %s", strerror(errno));
    }
    pid_t pid = 0;
    int rc = start(&pid, command, out != NULL ? ends[1] : STDERR_FILENO, err);
    if (out != NULL) {
        close(ends[1]);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    if (rc == 0) {
        rc = await(pid, ends[0], out, timeout_ms, stop, err);
    }
    if (out != NULL) {
        close(ends[0]);
    }
    return rc;
}
