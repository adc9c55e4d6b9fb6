/* What of a store's URI may be shown. */
#include "base/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_uri_is_shown_without_what_may_be_a_password(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        const char *shown;
    } cases[] = {
        {"sqlite:/var/lib/a@b:c.db", "sqlite:/var/lib/a@b:c.db"},
        {"postgresql://shop@db:5432/app?sslmode=require", "postgresql://shop@db:5432/app?sslmode=require"},
        {"postgresql://shop:PW@db.example:5432/app", "postgresql://***@db.example:5432/app"},
        {"postgres://shop:PW@db/app?sslmode=require", "postgres://***@db/app?***"},
        {"postgresql://shop:P@W@db/app", "postgresql://***@db/app"},
        {"postgresql://shop:PW@a,b:1/app", "postgresql://***@a,b:1/app"},
        {"postgresql://db/app?user=shop&password=PW", "postgresql://***"},
        {"postgresql://shop@db/app?password=P@W", "postgresql://***"},
        {"postgresql://shop:P?W@db/app", "postgresql://***"},
        {"fault:store_error@1:postgresql://shop:PW@db/app", "fault:store_error@1:postgresql://***@db/app"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char shown[SECRET_SHOWN_MAX];
        secret_show_uri(shown, sizeof shown, cases[i].uri);
        assert_string_equal(shown, cases[i].shown);
    }
}

static void an_argument_is_overwritten_in_place_and_only_where_it_has_a_secret(void **state)
{
    (void)state;
    char secret[] = "--store=postgresql://shop:PW@db/app";
    secret_wipe_uri(secret);
    assert_string_equal(secret, "--store=postgresql://**************");
    char plain[] = "postgresql://shop@db/app";
    secret_wipe_uri(plain);
    assert_string_equal(plain, "postgresql://shop@db/app");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uri_is_shown_without_what_may_be_a_password),
        cmocka_unit_test(an_argument_is_overwritten_in_place_and_only_where_it_has_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
