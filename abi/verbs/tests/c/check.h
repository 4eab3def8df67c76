/* What every program here prints: a line for each case, and the counts last. */
#ifndef WEFT_CHECK_H
#define WEFT_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cases_passed, cases_failed, cases_skipped;
static const char *case_name;
static int case_bad;

__attribute__((noreturn, unused)) static void end_program(void);

/* Ends the case under way. */
static inline void end_case(void)
{
	if (!case_name)
		return;
	if (case_bad) {
		printf("not ok %s\n", case_name);
		cases_failed++;
	} else {
		printf("ok %s\n", case_name);
		cases_passed++;
	}
	fflush(stdout);
	case_name = NULL;
}

static inline void begin_case(const char *name)
{
	end_case();
	case_name = name;
	case_bad = 0;
}

static inline void skip_case(const char *name, const char *why)
{
	end_case();
	printf("skip %s: %s\n", name, why);
	cases_skipped++;
}

static inline void complain(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s: %s (errno %d, %s)\n", file, line, case_name ? case_name : "?", what, errno,
		strerror(errno));
	case_bad = 1;
}

/* Notes a failure and goes on. */
#define CHECK(what) ((what) ? 1 : (complain(__FILE__, __LINE__, #what), 0))

/* The same for two numbers, which it prints. */
#define EQUAL(got, want)                                                                                       \
	do {                                                                                                   \
		long long got_ = (long long)(got), want_ = (long long)(want);                                  \
		if (got_ != want_) {                                                                           \
			fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__,               \
				case_name ? case_name : "?", #got, got_, want_);                               \
			case_bad = 1;                                                                          \
		}                                                                                              \
	} while (0)

/* What the rest of the program cannot do without. */
#define NEED(what)                                                                                             \
	do {                                                                                                   \
		if (!(what)) {                                                                                 \
			complain(__FILE__, __LINE__, "needed: " #what);                                        \
			end_program();                                                                         \
		}                                                                                              \
	} while (0)

/* -1 and this errno. */
#define MINUS_ONE(call, wanted_errno)                                                                          \
	do {                                                                                                   \
		errno = 0;                                                                                     \
		EQUAL((call), -1);                                                                             \
		EQUAL(errno, wanted_errno);                                                                    \
	} while (0)

/* NULL and this errno. */
#define IS_NULL(call, wanted_errno)                                                                            \
	do {                                                                                                   \
		errno = 0;                                                                                     \
		EQUAL((call) == NULL, 1);                                                                      \
		EQUAL(errno, wanted_errno);                                                                    \
	} while (0)

__attribute__((noreturn, unused)) static void end_program(void)
{
	end_case();
	printf("%d passed, %d failed, %d skipped\n", cases_passed, cases_failed, cases_skipped);
	exit(cases_failed != 0);
}

#endif
