/* Two or more MPI processes: messages of many sizes both ways at once and collectives, with -o one-sided work too,
 * every answer compared with what it has to be. Says `mpi_check: N answers right` on rank 0, or ends with the first
 * that is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (1 << 20)

static long right;

static void must(int so, const char *what, long at)
{
	if (!so) {
		fprintf(stderr, "mpi_check: %s is wrong at %ld\n", what, at);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	right++;
}

/* The octet at a place of a message: other ones for each sender and size. */
static unsigned char octet(int from, size_t size, size_t at)
{
	return (unsigned char)(31 * (size_t)from + 7 * size + at * 13 + (at >> 8));
}

static void messages(int rank, int ranks)
{
	unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

	for (size_t size = 0; size <= LARGEST; size = size ? size * 4 : 1) {
		MPI_Status status;
		int count;

		for (size_t at = 0; at < size; at++)
			out[at] = octet(rank, size, at);
		memset(in, 0, size);
		MPI_Sendrecv(out, (int)size, MPI_BYTE, to, 5, in, LARGEST, MPI_BYTE, from, 5, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &count);
		must((size_t)count == size, "the length of a message", (long)size);
		for (size_t at = 0; at < size; at++)
			if (in[at] != octet(from, size, at))
				must(0, "a message", (long)at);
		right++;
	}
	free(out);
	free(in);
}

static void collectives(int rank, int ranks)
{
	enum { COUNT = 10000 };
	long *mine = malloc(COUNT * sizeof(long)), *sum = malloc(COUNT * sizeof(long));
	int *all = malloc((size_t)ranks * sizeof(int)), *turned = malloc((size_t)ranks * sizeof(int));

	for (long at = 0; at < COUNT; at++)
		mine[at] = at * (rank + 1);
	MPI_Allreduce(mine, sum, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (long at = 0; at < COUNT; at++)
		must(sum[at] == at * ranks * (ranks + 1) / 2, "a sum", at);
	if (rank == ranks - 1)
		memcpy(mine, sum, COUNT * sizeof(long));
	MPI_Bcast(mine, COUNT, MPI_LONG, ranks - 1, MPI_COMM_WORLD);
	must(!memcmp(mine, sum, COUNT * sizeof(long)), "a broadcast", 0);
	for (int other = 0; other < ranks; other++)
		all[other] = 100 * rank + other;
	MPI_Alltoall(all, 1, MPI_INT, turned, 1, MPI_INT, MPI_COMM_WORLD);
	for (int other = 0; other < ranks; other++)
		must(turned[other] == 100 * other + rank, "an exchange of all with all", other);
	MPI_Barrier(MPI_COMM_WORLD);
	free(mine);
	free(sum);
	free(all);
	free(turned);
}

static void one_sided(int rank, int ranks)
{
	enum { COUNT = 1000, TURNS = 100 };
	long *window, one = 1, before, copy[COUNT];
	MPI_Win win;
	int to = (rank + 1) % ranks;

	MPI_Win_allocate((COUNT + 1) * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, (COUNT + 1) * sizeof(long));
	for (long at = 0; at < COUNT; at++)
		copy[at] = at + 1000 * rank;
	MPI_Win_fence(0, win);
	MPI_Put(copy, COUNT, MPI_LONG, to, 1, COUNT, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (long at = 0; at < COUNT; at++)
		must(window[1 + at] == at + 1000 * ((rank + ranks - 1) % ranks), "a put", at);
	MPI_Win_fence(0, win);
	MPI_Get(copy, COUNT, MPI_LONG, to, 1, COUNT, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (long at = 0; at < COUNT; at++)
		must(copy[at] == at + 1000 * rank, "a get", at);
	MPI_Win_lock_all(0, win);
	for (int turn = 0; turn < TURNS; turn++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		must(window[0] == (long)TURNS * ranks, "a counter of all", window[0]);
		MPI_Win_unlock(0, win);
	}
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	long all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	messages(rank, ranks);
	collectives(rank, ranks);
	if (argc > 1 && !strcmp(argv[1], "-o"))
		one_sided(rank, ranks);
	MPI_Reduce(&right, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("mpi_check: %ld answers right\n", all);
	MPI_Finalize();
	return 0;
}
