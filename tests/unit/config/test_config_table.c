/* The table against the structs and against itself. */
#include "config_test.h"

#include "config/load.h"
#include "config/table.h"
#include "config/write.h"

/* What several members and sizes of fields leave uncovered may only be padding. */
enum { PADDING_MAX = 7 };

static void cover(unsigned char *covered, size_t size, size_t offset, size_t bytes)
{
    assert_true(offset + bytes <= size);
    memset(covered + offset, 1, bytes);
}

static void assert_all_covered(const struct table *t, size_t size, size_t own_offset, size_t own_bytes)
{
    unsigned char covered[4096] = {0};
    assert_true(size <= sizeof covered);
    cover(covered, size, own_offset, own_bytes);
    for (const struct field *f = table_next(t, NULL); f != NULL; f = table_next(t, f)) {
        cover(covered, size, f->offset, f->size);
        cover(covered, size, f->offset_more, f->size_more);
    }
    size_t run = 0;
    for (size_t i = 0; i < size; i++) {
        run = covered[i] ? 0 : run + 1;
        if (run > PADDING_MAX) {
            fail_msg("no field of the table sets the member at offset %zu", i + 1 - run);
        }
    }
}

static void every_member_of_the_structs_is_in_the_table(void **state)
{
    (void)state;
    assert_all_covered(&config_table, sizeof(struct config), offsetof(struct config, arena),
                       sizeof(struct arena));
    assert_all_covered(&route_table, sizeof(struct route), 0, 0);
}

static void assert_fields_fit(const struct table *t)
{
    for (const struct field *f = table_next(t, NULL); f != NULL; f = table_next(t, f)) {
        const struct kind *kind = &field_kinds[f->kind];
        char how[FIELD_TEXT_MAX];
        if (kind->size != 0) {
            assert_int_equal(f->size, kind->size);
        } else if (f->kind == KIND_SIZE) {
            assert_true(f->size == 4 || f->size == 8);
        }
        assert_int_equal(f->size_more, kind->size_more);
        assert_true(f->kind != KIND_SIZE || f->size == 8 || f->max <= UINT32_MAX);
        assert_true(f->min <= f->max);
        assert_true((f->words != NULL) == (f->kind == KIND_WORD || f->kind == KIND_ENUM));
        field_how(how, f); /* asserts that it fits */
        assert_true(strlen(how) > strlen("write "));
        assert_non_null(f->meaning);
        assert_ptr_equal(config_field_find(t, slice_text(f->name)), f);
        const char *dot = strchr(f->name, '.');
        assert_true(dot == NULL || strchr(dot + 1, '.') == NULL);
    }
}

static void every_field_has_the_size_of_its_kind_and_a_sane_range(void **state)
{
    (void)state;
    assert_fields_fit(&config_table);
    assert_fields_fit(&route_table);
}

static void required_route_fields_are_texts_without_a_default(void **state)
{
    (void)state;
    for (const struct field *f = table_next(&route_table, NULL); f != NULL; f = table_next(&route_table, f)) {
        if ((f->flags & FIELD_REQUIRED) != 0) {
            assert_int_equal(f->size, sizeof(const char *));
            assert_null(f->standard);
        }
    }
}

static void every_field_has_an_example(void **state)
{
    (void)state;
    const struct table *tables[] = {&config_table, &route_table};
    for (size_t i = 0; i < 2; i++) {
        for (const struct field *f = table_next(tables[i], NULL); f != NULL; f = table_next(tables[i], f)) {
            assert_true(f->example != NULL || f->kind == KIND_ROUTES || f->kind == KIND_ROUTE_DEFAULTS);
        }
    }
}

static void secret_field_is_named_but_not_shown(void **state)
{
    (void)state;
    struct sample {
        const char *token, *word;
    } sample = {"hunter2", "plain"};
    const struct field fields[] = {
        {.name = "token",
         .kind = KIND_FILE,
         .flags = FIELD_SECRET,
         .offset = offsetof(struct sample, token),
         .size = sizeof(char *)},
        {.name = "word", .kind = KIND_FILE, .offset = offsetof(struct sample, word), .size = sizeof(char *)},
    };
    const struct group group = {.title = "sample", .fields = fields, .count = 2};
    const struct table table = {&group, 1};
    struct buf b;
    buf_init(&b, 1000);
    struct writer w = {.out = &b, .indent = ""};
    assert_int_equal(write_table(&w, &table, &sample), 0);
    assert_true(slice_equal(buf_slice(&b), SLICE_LITERAL("# token is set; it is secret and not shown\n"
                                                         "word: \"plain\"\n")));
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_of_the_structs_is_in_the_table),
        cmocka_unit_test(every_field_has_the_size_of_its_kind_and_a_sane_range),
        cmocka_unit_test(required_route_fields_are_texts_without_a_default),
        cmocka_unit_test(every_field_has_an_example),
        cmocka_unit_test(secret_field_is_named_but_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
