/* Many connections at once: two programs that echo over n queue pairs, or over n sockets. */
#ifndef WEFT_SCALE_CROWD_H
#define WEFT_SCALE_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum by { BY_CM, BY_GID, BY_SOCKETS };

/* What the command line says. */
extern struct options {
	enum by by;
	bool server;
	const char *address;
	uint16_t port;
	uint32_t count;	 /* connections */
	uint32_t window; /* messages that one connection has under way at most */
	uint32_t size;	 /* octets of the longest message */
} options;

/* --- messages: a header, and octets that belong to one message of one connection in one direction */

enum direction { ASK = 1, ANSWER, WRITTEN };
enum { SLEEP = 1, WITH_WRITE = 2 }; /* flags: wait asleep; an RDMA Write went ahead */

struct header {
	uint32_t size, connection, number, flags;
};

void message_fill(uint8_t *at, const struct header *h, enum direction direction);
/* Whether all octets behind the header are what they should be; counts those that were looked at. */
bool message_right(const uint8_t *at, const struct header *h, enum direction direction);
void block_fill(uint8_t *at, const struct header *h);
bool block_right(const uint8_t *at, const struct header *h);

/* --- what carries the messages */

/* A message has come for connection `connection`; it is at `at`, whole. */
typedef void arrival(uint32_t connection, const uint8_t *at);

struct carrier {
	/* The server: be there, and say so; then take all connections. */
	void (*listen)(void);
	void (*accept)(void);
	/* The client: make ready, then connect all; `each` and `all` in nanoseconds. */
	void (*prepare)(void);
	void (*connect)(uint64_t *each, uint64_t *all);
	/* Where the next message of a connection is to be written, and its sending. */
	uint8_t *(*buffer)(uint32_t connection, uint32_t number);
	void (*send)(uint32_t connection, const struct header *h);
	/* Looks for messages once; with `asleep` waits until there is one. */
	void (*receive)(bool asleep, arrival *arrived);
};

extern const struct carrier queue_pairs, sockets;

/* --- the rest */

uint64_t now_ns(void);
_Noreturn void die(const char *what, ...) __attribute__((format(printf, 1, 2)));
#define MUST(condition, ...)                                                                                           \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			die(__VA_ARGS__);                                                                              \
	} while (0)
/* Zeroed memory that costs nothing until it is touched. */
void *room(size_t octets);
/* A line of JSON for whoever drives the programs. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Octets of this process's own that are in memory: pages of files, such as a library's code, the machine has once. */
uint64_t resident(void);

/* Values, of which quantiles can be told to a hundredth. */
struct meter {
	uint64_t count, buckets[64 * 128];
};
void meter_add(struct meter *m, uint64_t value);
double meter_quantile(const struct meter *m, double which);

#endif
