/*
 * Small named cases, each in a process of its own.
 *
 *     CASE("group.what-is-shown")
 *     {
 *             EQ(close(-1), -1);
 *     }
 *
 * A case passes if it made at least one check and none failed; it is skipped by saying why (SKIP). A case that neither
 * checked nor skipped fails, as does one that leaves by a signal or takes too long. Checks in threads and in child
 * processes of a case count as its own.
 */
#ifndef WEFT_CASES_H
#define WEFT_CASES_H

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*case_function)(long argument);

/* Enters a case into the list. The name is made by printf's rules. */
void case_add(const char *file, int line, case_function run, long argument, const char *name, ...)
	__attribute__((format(printf, 5, 6)));

/* The program: `before` sees the options that are not the list's own and runs ahead of every case, in its process. */
struct program {
	const char *name;
	const char *options; /* further options, as getopt_long has them */
	const struct option *longs;
	const char *usage;   /* what --help says of them, whole lines */
	void (*option)(int letter, const char *value);
	void (*before)(void);
};
int cases_main(int argc, char **argv, const struct program *program);

/* What the macros below call. */
bool case_check(bool good, const char *file, int line, const char *what, ...) __attribute__((format(printf, 4, 5)));
_Noreturn void case_end(void);
_Noreturn void case_skip(const char *why, ...) __attribute__((format(printf, 1, 2)));

/* The current case's name, and whether a timer signal storms while it runs. */
extern const char *case_name;
extern bool case_storm;

/* Seconds on a clock that only goes forward. */
double now(void);

/* How long a case waits for what has to come, in milliseconds: a machine may stand still for seconds at any moment, and
   only a case that fails waits so long. `deadline` is when a wait that begins now ends, on the clock of `now`. */
extern int patience;
double deadline(void);

/* Sleeps so long, whatever signals come. */
void sleep_ms(int ms);

#define CASE_JOIN_(a, b) a##b
#define CASE_JOIN(a, b) CASE_JOIN_(a, b)
#define CASE_(title, function)                                                                                         \
	static void function(long);                                                                                    \
	__attribute__((constructor)) static void CASE_JOIN(add_, function)(void)                                       \
	{                                                                                                              \
		case_add(__FILE__, __LINE__, function, 0, "%s", title);                                                \
	}                                                                                                              \
	static void function(long argument __attribute__((unused)))
#define CASE(title) CASE_(title, CASE_JOIN(case_at_, __LINE__))

/* A block that enters cases by ADD: for tables. */
#define CASES __attribute__((constructor)) static void CASE_JOIN(cases_at_, __LINE__)(void)
#define ADD(function, argument, ...) case_add(__FILE__, __LINE__, function, argument, __VA_ARGS__)

#define SKIP(...) case_skip(__VA_ARGS__)

/* Notes a failure and goes on. True when it is well. */
#define CHECK(what) case_check(!!(what), __FILE__, __LINE__, "%s, errno %d (%s)", #what, errno, strerror(errno))

/* The same, with words. */
#define CHECKF(what, ...) case_check(!!(what), __FILE__, __LINE__, __VA_ARGS__)

/* What the rest of the case cannot do without. */
#define NEED(what)                                                                                                     \
	do {                                                                                                           \
		if (!CHECK(what))                                                                                      \
			case_end();                                                                                    \
	} while (0)

/* Two integers. */
#define EQ(got, want)                                                                                                  \
	({                                                                                                             \
		long long got_ = (long long)(got);                                                                     \
		int errno_ = errno;                                                                                    \
		long long want_ = (long long)(want);                                                                   \
		case_check(got_ == want_, __FILE__, __LINE__, "%s is %lld, not %lld (errno %d, %s)", #got, got_,       \
			   want_, errno_, strerror(errno_));                                                           \
	})

/* Octets. */
#define SAME(got, want, length)                                                                                        \
	case_check(memcmp(got, want, length) == 0, __FILE__, __LINE__, "%s is not %s over %zu octets", #got, #want,    \
		   (size_t)(length))

/* -1 and this errno. */
#define FAILS(call, wanted)                                                                                            \
	({                                                                                                             \
		errno = 0;                                                                                             \
		long long fails_ = (long long)(call);                                                                  \
		int errno_ = errno, wanted_ = (wanted);                                                                \
		case_check(fails_ == -1 && errno_ == wanted_, __FILE__, __LINE__,                                      \
			   "%s gives %lld with errno %d (%s), not -1 with %d (%s)", #call, fails_, errno_,             \
			   strerror(errno_), wanted_, strerror(wanted_));                                              \
	})

/* NULL and this errno. */
#define NONE(call, wanted)                                                                                             \
	({                                                                                                             \
		errno = 0;                                                                                             \
		const void *none_ = (call);                                                                            \
		int errno_ = errno, wanted_ = (wanted);                                                                \
		case_check(!none_ && errno_ == wanted_, __FILE__, __LINE__,                                            \
			   "%s gives %p with errno %d (%s), not NULL with %d (%s)", #call, none_, errno_,              \
			   strerror(errno_), wanted_, strerror(wanted_));                                              \
	})

#endif
