#include "run/signals.h"

#include "base/error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* SIGTSTP is taken and dropped: who stops would lose the claim. */
static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP};

int run_signals_open(struct run_signals *out, hapax_error *err)
{
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction now;
        if (sigaction(passed_on[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) {
            sigaddset(&taken, passed_on[i]);
        }
    }
    out->fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (out->fd < 0) {
        return error_set(err, HAPAX_E_SYSTEM, errno, "can't watch for signals: %s", strerror(errno));
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &out->pipe_before);
    sigaction(SIGCHLD, &standard, NULL); /* ignored, it would take the command's exit code away */
    sigprocmask(SIG_BLOCK, &taken, &out->before);
    return 0;
}

void run_signals_restore(const struct run_signals *s)
{
    sigaction(SIGPIPE, &s->pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}

void run_signals_close(struct run_signals *s)
{
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    close(s->fd);
}

int run_signals_next(struct run_signals *s)
{
    struct signalfd_siginfo info;
    return read(s->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

int run_signals_ends(int number)
{
    return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}
