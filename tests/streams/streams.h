/* One direction of a connection at one of its ends, which a thread or process moves on in calls that a seed chooses. */
#ifndef WEFT_STREAMS_H
#define WEFT_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The most octets that one call moves. */
enum { CALL_MAX = 192 << 10 };
/* Octets by which a receiver whose process was killed finds its place in the stream again. */
enum { PLACE = 24 };

/* What the halves of a connection know of it, in memory that all processes share. */
struct connection {
	int number;
	bool may_be_reset;  /* an end closes it before all came */
	bool was_killed_in; /* a process died in a call on it */
	bool is_cut;        /* somebody was told that it was reset */
};

/* A direction at one end. `at` is what went through it; what a call under way may add to that is `pending`. */
struct half {
	struct connection *connection;
	int fd;
	bool sends, blocks, never_waits;
	bool ends; /* the end of the stream is told, or heard of */
	bool is_over;
	unsigned flow;
	uint64_t at, total;
	uint64_t pending;
	const char *call;
	/* The other half of the direction. */
	struct half *peer;
	/* A sender that does not know how much left: up to so much more than `at`. */
	uint64_t unsure;
	/* A receiver that looks for its place, from `lost_at` on: `unsure` octets may be missing, and these came behind
	   them. */
	bool is_lost;
	uint64_t lost_at;
	unsigned char place[PLACE];
	size_t place_length;
};

/* What a step came to. */
enum step { MOVED, WAITS, OVER };

/* One call that `random` chooses. */
enum step half_step(struct half *h, uint64_t *random);
/* The process that moved it was killed in a call. */
void half_was_killed(struct half *h);

/* The next number of a generator, and one below `most`: as many bits as the one number says, of the other. */
uint64_t next_random(uint64_t *state);
size_t below(uint64_t *state, size_t most);
bool one_in(uint64_t *state, unsigned most);

/* Ends the process, with what is wrong. */
_Noreturn void wrong(const struct half *h, const char *what, ...) __attribute__((format(printf, 2, 3)));

#endif
