/* Posting and polling allocate nothing: this program has an allocator that counts. Now and then a list of the engine
   grows once more, when the service thread has the other one in its hands; that is no cost of an operation. */
#include "pair.h"

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

#define NO_MORE_THAN_A_FEW(count)                                                                              \
	do {                                                                                                   \
		long count_ = (count);                                                                         \
		if (!CHECK(count_ <= FEW))                                                                     \
			fprintf(stderr, "%ld allocations\n", count_);                                          \
	} while (0)

/* What a ping-pong of so many rounds allocates. */
static long ping_pong(int rounds, int flags)
{
	struct ibv_wc wc;
	long before = allocations;

	for (int i = 0; i < rounds; i++) {
		if (post_recv(&p.b, i, 0, 64) || post(&p.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0, 64, NULL, 0) ||
		    reap(p.a.send_cq, &wc) != 1 || reap(p.b.recv_cq, &wc) != 1 || post_recv(&p.a, i, 0, 64) ||
		    post(&p.b, i, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0, 64, NULL, 0) ||
		    reap(p.b.send_cq, &wc) != 1 || reap(p.a.recv_cq, &wc) != 1) {
			complain(__FILE__, __LINE__, "a round failed");
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
		if (post(&p.a, i, opcode, IBV_SEND_SIGNALED, 0, length, &p.b, 0) || reap(p.a.send_cq, &wc) != 1) {
			complain(__FILE__, __LINE__, "a round failed");
			break;
		}
	return allocations - before;
}

int main(void)
{
	pair_up(&p, (struct wishes){.inline_data = 64});
	begin_case("the counting allocator is in place");
	CHECK(allocations > 0);

	begin_case("Sends and receives");
	ping_pong(ROUNDS, 0);
	NO_MORE_THAN_A_FEW(ping_pong(ROUNDS, 0));

	begin_case("inline Sends");
	ping_pong(ROUNDS, IBV_SEND_INLINE);
	NO_MORE_THAN_A_FEW(ping_pong(ROUNDS, IBV_SEND_INLINE));

	begin_case("Writes");
	one_sided(ROUNDS, IBV_WR_RDMA_WRITE, 64);
	NO_MORE_THAN_A_FEW(one_sided(ROUNDS, IBV_WR_RDMA_WRITE, 64));
	one_sided(200, IBV_WR_RDMA_WRITE, 65536);
	NO_MORE_THAN_A_FEW(one_sided(200, IBV_WR_RDMA_WRITE, 65536));

	begin_case("Reads");
	one_sided(ROUNDS, IBV_WR_RDMA_READ, 64);
	NO_MORE_THAN_A_FEW(one_sided(ROUNDS, IBV_WR_RDMA_READ, 64));
	end_case();
	pair_down(&p);
	end_program();
}
