/* Ranks of MPI that measure a ping-pong of two or an allreduce of any number, and compare every result with what it has
 * to be.
 *
 *	mpi_rows ping-pong|allreduce OCTETS SECONDS [CORE CORE]
 *
 * With two cores each of two ranks is tied to its own. Rank 0 prints one JSON object: the median of half a round trip,
 * or of the time from a barrier until all ranks have the sum, percentiles, and how many were made, those before the
 * clock among them. A result that is wrong ends all ranks. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 7, WARM_UP = 50, IN_A_ROW = 50, MOST = 2000000 };

static int rank, ranks;

static void fail(const char *what, long at)
{
	fprintf(stderr, "mpi_rows: rank %d: %s (operation %ld)\n", rank, what, at);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *room(size_t octets)
{
	void *memory = malloc(octets);

	if (!memory)
		fail("there is no memory", 0);
	return memory;
}

static void tie(int core)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	if (sched_setaffinity(0, sizeof cores, &cores) != 0)
		fail("cannot be tied to its core", core);
}

/* Another message for each operation, other octets all over. */
static void fill(unsigned char *out, size_t octets, long at)
{
	for (size_t i = 0; i < octets; i++)
		out[i] = (unsigned char)(i * 13 + (i >> 8) + (size_t)at * 7 + 1);
}

/* Rank 0 sends, rank 1 returns what came; half of the time, in microseconds. Comparing is not in it. */
static double ping_pong(unsigned char *out, unsigned char *in, int octets, long at)
{
	MPI_Status status;
	double begin;
	int count;

	if (rank == 1) {
		MPI_Recv(in, octets, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(in, octets, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
		return 0;
	}
	/* Filled whole every time it would take longer than the message. */
	if (at % 64 == 0)
		fill(out, (size_t)octets, at);
	memcpy(out, &at, (size_t)octets < sizeof at ? (size_t)octets : sizeof at);
	begin = MPI_Wtime();
	MPI_Send(out, octets, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
	MPI_Recv(in, octets, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &status);
	begin = MPI_Wtime() - begin;
	MPI_Get_count(&status, MPI_BYTE, &count);
	if (count != octets)
		fail("a message has another length", at);
	if (memcmp(out, in, (size_t)octets) != 0)
		fail("a message is wrong", at);
	return begin / 2 * 1e6;
}

/* A word of what a rank adds. */
static int64_t share(int of, long at, int i)
{
	return (int64_t)(of + 1) * (i + 1) + at;
}

/* What the shares of all ranks in a word come to. */
static int64_t sum(long at, int i)
{
	return (int64_t)ranks * (ranks + 1) / 2 * (i + 1) + ranks * at;
}

/* The sum over all ranks of all words; the time on this rank, in microseconds. */
static double allreduce(int64_t *out, int64_t *in, int words, long at)
{
	double begin;

	for (int i = 0; i < words; i++)
		out[i] = share(rank, at, i);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	MPI_Allreduce(out, in, words, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	begin = MPI_Wtime() - begin;
	for (int i = 0; i < words; i++)
		if (in[i] != sum(at, i))
			fail("a sum is wrong", at);
	return begin * 1e6;
}

static int less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(const double *sorted, long count, double part)
{
	return sorted[(long)(part * (double)(count - 1) + 0.5)];
}

int main(int argc, char **argv)
{
	int octets, is_ping_pong, goes_on = 1;
	double begin, seconds, *times;
	long count = 0, at = 0;
	void *out, *in;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if ((argc != 4 && argc != 6) || ranks < 2)
		fail("usage: ranks of mpi_rows ping-pong|allreduce OCTETS SECONDS [CORE CORE]", 0);
	is_ping_pong = strcmp(argv[1], "ping-pong") == 0;
	if (ranks != 2 && (is_ping_pong || argc == 6))
		fail("a ping-pong, and two cores, are for two ranks", 0);
	octets = atoi(argv[2]);
	seconds = atof(argv[3]);
	if ((!is_ping_pong && strcmp(argv[1], "allreduce") != 0) || octets < 8 || octets % 8 != 0 || seconds <= 0)
		fail("no such measurement: sizes are whole words of 8 octets", 0);
	if (argc == 6)
		tie(atoi(argv[4 + rank]));
	out = room((size_t)octets);
	in = room((size_t)octets);
	memset(in, 0, (size_t)octets);

#define ONE() (is_ping_pong ? ping_pong(out, in, octets, at) : allreduce(out, in, octets / 8, at))
	for (; at < WARM_UP; at++)
		ONE();
	times = room(MOST * sizeof *times);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	/* Rank 0 has the clock, and says after some of them whether to go on. */
	while (goes_on) {
		for (int i = 0; i < IN_A_ROW; i++, at++)
			times[count++] = ONE();
		goes_on = MPI_Wtime() - begin < seconds && count + IN_A_ROW <= MOST;
		MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}

	/* An operation of all has ended when the slowest one has its result. */
	if (!is_ping_pong)
		MPI_Reduce(rank == 0 ? MPI_IN_PLACE : times, times, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		qsort(times, (size_t)count, sizeof *times, less);
		printf("{\"median_us\": %.3f, \"min_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"operations\": %ld}\n",
		       quantile(times, count, 0.5), times[0], quantile(times, count, 0.99), quantile(times, count, 0.999), at);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
