/* Posting and polling allocate nothing: this program has an allocator that counts. Now and then a list of the engine
   grows once more, when the service thread has the other one in its hands; that is no cost of an operation. */
#include "edge.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
	*__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static volatile long allocations;

void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	allocations++;
	return __libc_calloc(count, size);
}

void *realloc(void *at, size_t size)
{
	allocations++;
	return __libc_realloc(at, size);
}

int posix_memalign(void **at, size_t alignment, size_t size)
{
	allocations++;
	*at = __libc_memalign(alignment, size);
	return *at ? 0 : ENOMEM;
}

void free(void *at)
{
	__libc_free(at);
}

static struct pair p;

enum { ROUNDS = 2000, FEW = ROUNDS / 100 };

/* Twice, and the second time is counted: what is made once is there by then. */
#define ALLOCATES_ALMOST_NOTHING(run)                                                                                  \
	do {                                                                                                           \
		(void)(run);                                                                                           \
		long count_ = (run);                                                                                   \
		CHECKF(count_ <= FEW, "%s: %ld allocations", #run, count_);                                            \
	} while (0)

/* What a ping-pong of so many rounds allocates. */
static long ping_pong(int rounds, int flags)
{
	struct ibv_wc wc;
	long before = allocations;

	for (int i = 0; i < rounds; i++) {
		if (post_recv(&p.b, i, 0, 64) || post(&p.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0, 64, NULL, 0) ||
		    !reap(p.a.scq, &wc) || !reap(p.b.rcq, &wc) || post_recv(&p.a, i, 0, 64) ||
		    post(&p.b, i, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0, 64, NULL, 0) ||
		    !reap(p.b.scq, &wc) || !reap(p.a.rcq, &wc)) {
			CHECKF(false, "round %d failed", i);
			break;
		}
	}
	return allocations - before;
}

static long one_sided(int rounds, enum ibv_wr_opcode opcode, size_t length)
{
	struct ibv_wc wc;
	long before = allocations;

	for (int i = 0; i < rounds; i++)
		if (post(&p.a, i, opcode, IBV_SEND_SIGNALED, 0, length, &p.b, 0) || !reap(p.a.scq, &wc)) {
			CHECKF(false, "round %d failed", i);
			break;
		}
	return allocations - before;
}

CASE("alloc.the-counting-allocator-is-in-place")
{
	pair_up(&p, (struct wish){});
	CHECK(allocations > 0);
	pair_down(&p);
}

CASE("alloc.sends-and-receives")
{
	pair_up(&p, (struct wish){});
	ALLOCATES_ALMOST_NOTHING(ping_pong(ROUNDS, 0));
	pair_down(&p);
}

CASE("alloc.inline-sends")
{
	pair_up(&p, (struct wish){.inline_data = 64});
	ALLOCATES_ALMOST_NOTHING(ping_pong(ROUNDS, IBV_SEND_INLINE));
	pair_down(&p);
}

CASE("alloc.writes")
{
	pair_up(&p, (struct wish){});
	ALLOCATES_ALMOST_NOTHING(one_sided(ROUNDS, IBV_WR_RDMA_WRITE, 64));
	ALLOCATES_ALMOST_NOTHING(one_sided(200, IBV_WR_RDMA_WRITE, 65536));
	pair_down(&p);
}

CASE("alloc.reads")
{
	pair_up(&p, (struct wish){});
	ALLOCATES_ALMOST_NOTHING(one_sided(ROUNDS, IBV_WR_RDMA_READ, 64));
	pair_down(&p);
}

int main(int argc, char **argv)
{
	static const struct program program = {.name = "alloc", .before = env_open};

	return cases_main(argc, argv, &program);
}
