#include "run/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* A background process that sets the foreground is stopped, unless it holds SIGTTOU back. */
static bool set_foreground(int fd, pid_t group)
{
    sigset_t stop;
    sigset_t before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stop, &before);
    bool done = tcsetpgrp(fd, group) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return done;
}

bool run_terminal_lend(struct run_terminal *t, pid_t group)
{
    int fd = t->fd >= 0 ? t->fd : open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return false;
    }
    pid_t holder = tcgetpgrp(fd);
    if (holder != group && (holder != getpgrp() || !set_foreground(fd, group))) {
        if (fd != t->fd) {
            close(fd);
        }
        return false;
    }
    t->fd = fd;
    return true;
}

void run_terminal_take(struct run_terminal *t)
{
    if (t->fd >= 0) {
        (void)set_foreground(t->fd, getpgrp());
        close(t->fd);
        t->fd = -1;
    }
}
