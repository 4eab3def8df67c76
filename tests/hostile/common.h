/* What the attacked server and its honest client agree on. */
#pragma once

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory that the server opens to each of its peers. */
#define REGION 65536
/* The longest message that is not written: questions, answers. */
#define MESSAGE 512

#define MUST(what, ...)                                                                                        \
	do {                                                                                                   \
		if (!(what)) {                                                                                 \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                        \
			fprintf(stderr, __VA_ARGS__);                                                          \
			fprintf(stderr, ": %m\n");                                                             \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

/* Private data of the server's accept: where its peer may write and read. In the host's order. */
struct grant {
	uint64_t address;
	uint32_t key;
	uint32_t length;
};

/* What an honest client sends behind its Write. `password`: only honest clients know it. */
struct question {
	uint64_t password;
	uint32_t number;
	uint32_t length;
};

/* The answer, with octets of its own behind it. */
struct answer {
	uint32_t number;
	uint32_t wrong;
	uint8_t octets[MESSAGE - 8];
};

/* The octet at a place of message `number`. */
static inline uint8_t octet_of(uint32_t number, uint32_t at)
{
	uint32_t mixed = (number * 2654435761u) ^ (at * 2246822519u);

	return (uint8_t)(mixed ^ mixed >> 13 ^ mixed >> 24);
}

static inline void fill(uint8_t *to, uint32_t number, uint32_t length)
{
	for (uint32_t at = 0; at < length; at++)
		to[at] = octet_of(number, at);
}

static inline bool is_right(const uint8_t *octets, uint32_t number, uint32_t length)
{
	for (uint32_t at = 0; at < length; at++)
		if (octets[at] != octet_of(number, at))
			return false;
	return true;
}
