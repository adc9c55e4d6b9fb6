#include "run/child.h"

#include "base/clock.h"
#include "base/error.h"
#include "run/guardian.h"
#include "run/stream.h"
#include "run/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CODE_TIMED_OUT = 124, CODE_BY_SIGNAL = 128 };

#define NEVER INT64_MAX

/* A command that runs. Until its end is taken it is not reaped: so its number, which names its group, stays its own and
 * no signal can reach strangers. */
struct run_attendance {
    const struct run_child_request *request;
    struct run_child_end *end;
    struct run_signals *signals;
    struct run_terminal terminal;
    struct run_guardian guardian;
    pid_t pid;
    bool ended;
    bool warned_stop;
    bool no_memory;          /* to keep what was read */
    bool passing_on;         /* all that is left to do */
    int64_t timeout_mono_ms; /* when its time is over */
    int64_t kill_mono_ms;    /* when SIGKILL follows on SIGTERM */
    int64_t linger_mono_ms;  /* when what it left behind is waited for no longer */
    size_t keep_left;
    struct run_stream streams[RUN_STREAMS];
};

static void note(const struct run_attendance *a, const char *text)
{
    a->request->note(a->request->ctx, text);
}

/* --- start --------------------------------------------------------------------------------------- */

/* In the child, between fork and exec: only what a signal handler might do. */
static _Noreturn void become(const struct run_attendance *a, pid_t parent, const int *outputs, int report)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CODE_BY_SIGNAL + SIGKILL); /* it died before the line above */
    }
    run_signals_restore(a->signals);
    if (dup2(outputs[RUN_STDOUT], STDOUT_FILENO) >= 0 && dup2(outputs[RUN_STDERR], STDERR_FILENO) >= 0) {
        execvpe(a->request->argv[0], a->request->argv, a->request->environment);
    }
    int error = errno;
    ssize_t ignored = write(report, &error, sizeof error);
    (void)ignored;
    _exit(127);
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* Fork and wait for the exec. *start_error is its errno; then there is no child any more. */
static int start(struct run_attendance *a, int *start_error, hapax_error *err)
{
    enum { REPORT = RUN_STREAMS, PIPES };
    int in[PIPES] = {-1, -1, -1};
    int out[PIPES] = {-1, -1, -1};
    pid_t parent = getpid();
    for (int i = 0; i < PIPES; i++) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) {
            close_all(in, PIPES);
            close_all(out, PIPES);
            return error_set(err, HAPAX_E_SYSTEM, errno, "can't make a pipe: %s", strerror(errno));
        }
        in[i] = fds[0];
        out[i] = fds[1];
    }
    int guarded = run_guardian_start(&a->guardian, err);
    if (guarded != 0) {
        close_all(in, PIPES);
        close_all(out, PIPES);
        return guarded;
    }
    a->pid = fork();
    if (a->pid == 0) {
        become(a, parent, out, out[REPORT]);
    }
    int fork_error = errno;
    close_all(out, PIPES);
    if (a->pid < 0) {
        run_guardian_dismiss(&a->guardian);
        close_all(in, PIPES);
        return error_set(err, HAPAX_E_SYSTEM, fork_error, "can't start a process: %s", strerror(fork_error));
    }
    run_guardian_tell(&a->guardian, a->pid);
    ssize_t n;
    do {
        n = read(in[REPORT], start_error, sizeof *start_error);
    } while (n < 0 && errno == EINTR);
    close(in[REPORT]);
    for (int i = 0; i < RUN_STREAMS; i++) {
        a->streams[i].from = in[i];
    }
    if (n != (ssize_t)sizeof *start_error) {
        *start_error = 0;
        return 0;
    }
    run_guardian_dismiss(&a->guardian);
    waitpid(a->pid, NULL, 0);
    return 0;
}

/* --- attend -------------------------------------------------------------------------------------- */

static void say_stopped(struct run_attendance *a, int number)
{
    if (number == SIGTTIN || number == SIGTTOU) {
        if (run_terminal_lend(&a->terminal, a->pid)) {
            kill(-a->pid, SIGCONT);
        } else if (!a->warned_stop) {
            note(a, "the command wants the terminal and stands still: bring it to the foreground (fg), or "
                    "give it "
                    "other input");
        }
        a->warned_stop = true;
    } else if (number == SIGTSTP) {
        note(a, "not stopped: a command that stands still would lose its claim on the key");
        kill(-a->pid, SIGCONT);
    }
}

/* Has the command stopped or ended? */
static void look(struct run_attendance *a)
{
    siginfo_t info = {0};
    if (!a->ended && waitid(P_PID, (id_t)a->pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == a->pid) {
        say_stopped(a, info.si_status);
    }
    info = (siginfo_t){0};
    if (a->ended || waitid(P_PID, (id_t)a->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != a->pid) {
        return;
    }
    a->ended = true;
    a->linger_mono_ms = clock_mono_ms() + RUN_LINGER_MS;
    a->timeout_mono_ms = NEVER;
    a->kill_mono_ms = NEVER;
    run_guardian_dismiss(&a->guardian); /* what it has left behind on purpose may live */
    if (a->end->timed_out) {
        kill(-a->pid, SIGKILL); /* the rest of its group */
    }
    for (int i = 0; i < RUN_STREAMS; i++) {
        a->no_memory = run_stream_drain(&a->streams[i]) != 0 || a->no_memory;
    }
    run_terminal_take(&a->terminal);
}

/* After the command's end they are ours. */
static void take_signals(struct run_attendance *a)
{
    look(a);
    for (int number; (number = run_signals_next(a->signals)) != 0;) {
        if (a->ended && run_signals_ends(number)) {
            a->end->ending_signal = a->end->ending_signal != 0 ? a->end->ending_signal : number;
            a->linger_mono_ms = clock_mono_ms();
        } else if (a->passing_on && number == SIGTSTP) {
            raise(SIGSTOP);
        } else if (number == SIGTSTP && !a->ended) {
            say_stopped(a, number);
        } else if (number != SIGCHLD && !a->ended) {
            kill(-a->pid, number);
            if (run_signals_ends(number)) {
                kill(-a->pid, SIGCONT); /* one that stands still would not hear it */
            }
        }
    }
    look(a); /* again: a SIGCHLD that was just taken may tell of what came after the first look */
}

static void keep_deadlines(struct run_attendance *a)
{
    int64_t now = clock_mono_ms();
    if (now >= a->timeout_mono_ms) {
        look(a); /* it may have ended just in time */
    }
    if (now >= a->timeout_mono_ms) {
        a->end->timed_out = true;
        a->timeout_mono_ms = NEVER;
        a->kill_mono_ms = now + a->request->kill_after_ms;
        note(a, "the command's time is over: ending it and its process group");
        kill(-a->pid, SIGTERM);
        kill(-a->pid, SIGCONT);
    }
    if (now >= a->kill_mono_ms) {
        a->kill_mono_ms = NEVER;
        kill(-a->pid, SIGKILL);
    }
}

/* How long poll() may wait. */
static int pause_ms(const struct run_attendance *a)
{
    enum { HOUR_MS = 3600 * 1000 };
    int64_t now = clock_mono_ms();
    int64_t next = a->timeout_mono_ms < a->kill_mono_ms ? a->timeout_mono_ms : a->kill_mono_ms;
    if (a->linger_mono_ms > now && a->linger_mono_ms < next) {
        next = a->linger_mono_ms; /* once past, only a reader is waited for that there was no memory for */
    }
    int64_t pause = next > now ? next - now : 0;
    return next == NEVER ? -1 : pause < HOUR_MS ? (int)pause : HOUR_MS;
}

/* One turn: wait for whatever is next, and act on it. False: there was nothing. */
static bool turn(struct run_attendance *a, int wait_ms)
{
    struct pollfd fds[RUN_STREAMS + 1] = {{.fd = a->signals->fd, .events = POLLIN}};
    for (int i = 0; i < RUN_STREAMS; i++) {
        fds[i + 1] = run_stream_wants(&a->streams[i]);
    }
    int n = poll(fds, RUN_STREAMS + 1, wait_ms);
    for (int i = 0; i < RUN_STREAMS && n > 0; i++) {
        a->no_memory = run_stream_turn(&a->streams[i], fds[i + 1].revents) != 0 || a->no_memory;
    }
    take_signals(a);
    return n != 0;
}

static bool is_over(struct run_attendance *a)
{
    bool open = false;
    if (!a->ended) {
        return false;
    }
    for (int i = 0; i < RUN_STREAMS; i++) {
        if (!run_stream_is_read(&a->streams[i]) && a->end->ending_signal == 0) {
            return false;
        }
        open = open || a->streams[i].from >= 0;
    }
    if (open && clock_mono_ms() < a->linger_mono_ms) {
        return false;
    }
    if (open && a->end->ending_signal == 0) {
        note(a, "the command has ended, but something it started still holds its output: not waiting for "
                "that any longer");
    }
    return true;
}

static void attend(struct run_attendance *a)
{
    bool warned = false;
    while (!is_over(a)) {
        turn(a, pause_ms(a));
        keep_deadlines(a);
        if (a->no_memory && !warned) {
            note(a, "there is no memory to keep more of the command's output");
            warned = true;
        }
    }
}

static void take_end(struct run_attendance *a)
{
    int status = 0;
    while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR) {
    }
    struct run_child_end *end = a->end;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    bool succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    end->code = succeeded          ? 0 /* just in time: it says so itself */
                : end->timed_out   ? CODE_TIMED_OUT
                : end->signal != 0 ? CODE_BY_SIGNAL + end->signal
                                   : WEXITSTATUS(status);
    for (int i = 0; i < RUN_STREAMS; i++) {
        end->written[i] = a->streams[i].written;
        run_stream_close(&a->streams[i]);
    }
}

void run_child_pass_on(struct run_child_end *end)
{
    struct run_attendance *a = end->attendance;
    if (a == NULL || !a->ended) {
        return;
    }
    a->passing_on = true;
    while (
        !(run_stream_is_flushed(&a->streams[RUN_STDOUT]) && run_stream_is_flushed(&a->streams[RUN_STDERR]))) {
        bool told = end->ending_signal != 0;
        if (!turn(a, told ? 0 : -1) && told) {
            end->is_cut = true;
            break;
        }
    }
    for (int i = 0; i < RUN_STREAMS; i++) {
        int error = a->streams[i].error;
        end->write_error = error != 0 && error != EPIPE ? error : end->write_error;
    }
}

int run_child(struct run_child_end *out, const struct run_child_request *request, struct run_signals *signals,
              hapax_error *err)
{
    *out = (struct run_child_end){0};
    struct run_attendance *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return error_code(err, HAPAX_E_MEMORY);
    }
    out->attendance = a;
    a->request = request;
    a->end = out;
    a->signals = signals;
    a->terminal = RUN_TERMINAL_NONE;
    a->guardian = RUN_GUARDIAN_NONE;
    a->kill_mono_ms = NEVER;
    a->linger_mono_ms = NEVER;
    a->timeout_mono_ms = request->timeout_ms > 0 ? clock_mono_ms() + request->timeout_ms : NEVER;
    a->keep_left = request->keep_bytes_max;
    static const int ours[RUN_STREAMS] = {[RUN_STDOUT] = STDOUT_FILENO, [RUN_STDERR] = STDERR_FILENO};
    for (int i = 0; i < RUN_STREAMS; i++) {
        buf_init(&out->kept[i], request->keep_bytes_max);
        run_stream_init(&a->streams[i], ours[i], &out->kept[i], &a->keep_left);
    }
    int code = start(a, &out->start_error, err);
    if (code == 0 && out->start_error == 0) {
        attend(a);
        take_end(a);
    }
    return code;
}

void run_child_end_free(struct run_child_end *end)
{
    for (int i = 0; i < RUN_STREAMS; i++) {
        buf_free(&end->kept[i]);
        if (end->attendance != NULL) {
            run_stream_free(&end->attendance->streams[i]);
        }
    }
    free(end->attendance);
    end->attendance = NULL;
}
