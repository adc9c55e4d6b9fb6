/* Commands: what they print, how they end, and what they may leave behind. */
#include "base/clock.h"
#include "drill/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 60000
#define OUTPUT_MAX  64

static int run(const char *command, struct buf *out, int64_t timeout_ms, hapax_error *err)
{
    buf_init(out, OUTPUT_MAX);
    return command_run(command, out, timeout_ms, NULL, err);
}

static void output_is_kept_up_to_its_maximum(void **state)
{
    (void)state;
    struct buf out;
    assert_int_equal(run("echo 42; cat", &out, PATIENCE_MS, NULL), 0); /* nothing on standard input */
    assert_true(slice_equal(buf_slice(&out), SLICE_LITERAL("42\n")));
    buf_free(&out);
    assert_int_equal(run("head -c 1000000 /dev/zero", &out, PATIENCE_MS, NULL), 0);
    assert_int_equal(out.len, OUTPUT_MAX);
    buf_free(&out);
}

static void an_end_that_is_not_good_is_told(void **state)
{
    (void)state;
    struct buf out;
    hapax_error err = {0};
    assert_int_equal(run("exit 3", &out, PATIENCE_MS, &err), HAPAX_E_SYSTEM);
    assert_non_null(strstr(err.message, "exit code 3"));
    buf_free(&out);
    assert_int_equal(run("kill -9 $$", &out, PATIENCE_MS, &err), HAPAX_E_SYSTEM);
    assert_non_null(strstr(err.message, "signal 9"));
    buf_free(&out);
}

static void one_that_takes_too_long_is_killed_with_its_children(void **state)
{
    (void)state;
    struct buf out;
    hapax_error err = {0};
    assert_int_equal(run("sleep 600 & echo $!; wait", &out, 300, &err), HAPAX_E_TIMEOUT);
    assert_int_equal(buf_append_byte(&out, '\0'), 0);
    long child = strtol(out.ptr, NULL, 10);
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/stat", child);
    int64_t end = clock_mono_ms() + PATIENCE_MS;
    bool gone = child == 0; /* it may not have come to say it */
    while (!gone && clock_mono_ms() < end) {
        char stat[256] = "";
        FILE *file = fopen(path, "r");
        gone = file == NULL || fgets(stat, sizeof stat, file) == NULL || strstr(stat, ") Z ") != NULL;
        if (file != NULL) {
            fclose(file);
        }
    }
    assert_true(gone);
    buf_free(&out);
    static volatile sig_atomic_t stop = 1;
    assert_int_equal(command_run("sleep 600", NULL, PATIENCE_MS, &stop, NULL), HAPAX_E_CANCELED);
}

static void what_it_leaves_in_the_background_is_not_waited_for(void **state)
{
    (void)state;
    struct buf out;
    int64_t started = clock_mono_ms();
    assert_int_equal(run("sleep 60 & echo $!", &out, PATIENCE_MS, NULL), 0);
    assert_true(clock_mono_ms() - started < 60000);
    assert_int_equal(buf_append_byte(&out, '\0'), 0);
    pid_t left = (pid_t)strtol(out.ptr, NULL, 10);
    assert_true(left > 1);
    assert_int_equal(kill(left, SIGKILL), 0); /* still there */
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_kept_up_to_its_maximum),
        cmocka_unit_test(an_end_that_is_not_good_is_told),
        cmocka_unit_test(one_that_takes_too_long_is_killed_with_its_children),
        cmocka_unit_test(what_it_leaves_in_the_background_is_not_waited_for),
    };
    return cmocka_run_group_tests_name("drill_command", tests, NULL, NULL);
}
