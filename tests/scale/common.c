/* Messages, time, memory and meters. */
#include "crowd.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Octets that a message of any seed is cut from. */
enum { SEEDS = 4093 };
static uint8_t *octets;

static const uint8_t *cut(const struct header *h, enum direction direction)
{
	if (!octets) {
		size_t length = SEEDS + options.size;
		uint64_t state = 0x9E3779B97F4A7C15;
		octets = room(length);
		for (size_t i = 0; i < length; i++) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			octets[i] = (uint8_t)(state >> 32);
		}
	}
	uint64_t seed = h->connection * 2654435761u + h->number * 40503u + direction * 1009u;
	return octets + seed % SEEDS;
}

void message_fill(uint8_t *at, const struct header *h, enum direction direction)
{
	memcpy(at, h, sizeof(*h));
	memcpy(at + sizeof(*h), cut(h, direction), h->size - sizeof(*h));
}

bool message_right(const uint8_t *at, const struct header *h, enum direction direction)
{
	return memcmp(at + sizeof(*h), cut(h, direction), h->size - sizeof(*h)) == 0;
}

void block_fill(uint8_t *at, const struct header *h)
{
	memcpy(at, cut(h, WRITTEN), h->size);
}

bool block_right(const uint8_t *at, const struct header *h)
{
	return memcmp(at, cut(h, WRITTEN), h->size) == 0;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void die(const char *what, ...)
{
	int error = errno;
	va_list list;

	va_start(list, what);
	fprintf(stderr, "crowd %s: ", options.server ? "server" : "client");
	vfprintf(stderr, what, list);
	fprintf(stderr, " (errno %d, %s)\n", error, strerror(error));
	va_end(list);
	exit(1);
}

void *room(size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	MUST(at != MAP_FAILED, "%zu octets", length);
	return at;
}

void say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
}

uint64_t resident(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	unsigned long kib, sum = 0;
	int found = 0;

	MUST(file, "/proc/self/status");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %lu", &kib) == 1 || sscanf(line, "RssShmem: %lu", &kib) == 1) {
			sum += kib;
			found++;
		}
	fclose(file);
	MUST(found == 2, "RssAnon and RssShmem in /proc/self/status");
	return sum * 1024;
}

/* --- meters: buckets of one part in 128 */

void meter_add(struct meter *m, uint64_t value)
{
	int shift = value < 128 ? 0 : 57 - __builtin_clzll(value);

	m->buckets[(size_t)shift * 128 + (value >> shift)]++;
	m->count++;
}

double meter_quantile(const struct meter *m, double which)
{
	uint64_t wanted = (uint64_t)((double)m->count * which), seen = 0;

	for (size_t i = 0; i < sizeof(m->buckets) / sizeof(m->buckets[0]); i++) {
		seen += m->buckets[i];
		if (seen > wanted)
			return (double)(i % 128 << i / 128);
	}
	return 0;
}
