/* Comparing answers. */
#ifndef DRILL_ANSWERS_H
#define DRILL_ANSWERS_H

#include "drill/machine.h"

enum header_change { HEADER_SAME, HEADER_LOST, HEADER_COUNT, HEADER_CHANGED };

/* Of a problem document, while it is all there. */
bool answer_body_says_unknown(const struct answer *a, struct slice body);

/* May not differ between an answer and its repeat. */
bool answer_header_counts(const struct drill_setup *s, struct slice name);
size_t answer_lines(const struct answer *a, struct slice name);
/* All lines of one name, in order. */
enum header_change answer_header_change(const struct answer *first, const struct answer *repeat,
                                        struct slice name);

#endif
