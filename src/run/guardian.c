#include "run/guardian.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: only what a signal handler might do, since the store's threads are not here to give their locks back. */
static _Noreturn void guard(int from)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    setsid(); /* who kills our group or session does not kill it */
    prctl(PR_SET_NAME, "hapax-guardian");
    dup2(from, STDIN_FILENO);
    closefrom(STDIN_FILENO + 1);
    pid_t group;
    char nothing;
    if (read(STDIN_FILENO, &group, sizeof group) == (ssize_t)sizeof group &&
        read(STDIN_FILENO, &nothing, 1) == 0) {
        kill(-group, SIGKILL);
    }
    _exit(0);
}

int run_guardian_start(struct run_guardian *out, hapax_error *err)
{
    int fds[2];
    *out = RUN_GUARDIAN_NONE;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return error_set(err, HAPAX_E_SYSTEM, errno, "can't make a pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    int fork_error = errno;
    if (pid == 0) {
        guard(fds[0]);
    }
    close(fds[0]);
    if (pid < 0) {
        close(fds[1]);
        return error_set(err, HAPAX_E_SYSTEM, fork_error, "can't start a process: %s", strerror(fork_error));
    }
    *out = (struct run_guardian){.pid = pid, .fd = fds[1]};
    return 0;
}

void run_guardian_tell(const struct run_guardian *g, pid_t group)
{
    while (write(g->fd, &group, sizeof group) < 0 && errno == EINTR) {
    }
}

void run_guardian_dismiss(struct run_guardian *g)
{
    if (g->fd < 0) {
        return;
    }
    kill(g->pid, SIGKILL);
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(g->fd);
    *g = RUN_GUARDIAN_NONE;
}
