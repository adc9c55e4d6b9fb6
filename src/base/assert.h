/* HAPAX_ASSERT: checks of our own invariants, on in every build. Never for input that comes from
 * the network, a disk, a configuration or a database: those get an error. */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

_Noreturn void assert_fail(const char *expression, const char *file, int line);

#define HAPAX_ASSERT(e) ((e) ? (void)0 : assert_fail(#e, __FILE__, __LINE__))

#endif
