/* Signalling and order, in one direction, in both, and from several threads. */
#include "env.h"

/* --- signalling */

CASE("signal.unsignalled-sends-are-silent")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 4; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(send_of(&p.a, i, i == 3 ? IBV_SEND_SIGNALED : 0, 0, 8) == 0);
	}
	/* The signalled one says that those before it are done. */
	WORKS(p.a.scq, 3);
	CHECK(quiet(p.a.scq));
	for (uint64_t i = 0; i < 4; i++)
		WORKS(p.b.rcq, i);
	pair_down(&p);
}

CASE("signal.all-if-the-queue-pair-says-so")
{
	struct pair p;

	pair_up(&p, (struct wish){.sig_all = 1});
	for (uint64_t i = 0; i < 4; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(send_of(&p.a, i, 0, 0, 8) == 0);
	}
	for (uint64_t i = 0; i < 4; i++)
		WORKS(p.a.scq, i);
	pair_down(&p);
}

CASE("signal.unsignalled-writes-many-times-the-depth")
{
	struct pair p;

	pair_up(&p, (struct wish){.depth = 8});
	for (uint64_t i = 0; i < 400; i++) {
		int flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
		NEED(post(&p.a, i, IBV_WR_RDMA_WRITE, flags, 0, 64, &p.b, 0) == 0);
		if (flags)
			WORKS(p.a.scq, i);
	}
	pair_down(&p);
}

/* --- order */

CASE("order.of-completions-is-that-of-posts")
{
	struct pair p;
	enum { MANY = 60 };

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < MANY; i++) {
		NEED(post_recv(&p.b, i, 0, 4096) == 0);
		enum ibv_wr_opcode op = i % 3 == 0 ? IBV_WR_SEND : i % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		NEED(post(&p.a, i, op, IBV_SEND_SIGNALED, 0, 1 + (uint32_t)i * 50, &p.b, 8192) == 0);
	}
	for (uint64_t i = 0; i < MANY; i++)
		WORKS(p.a.scq, i);
	pair_down(&p);
}

CASE("order.a-send-arrives-behind-the-writes-before-it")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (unsigned round = 1; round <= 50; round++) {
		fill(p.a.buf, 50000, round);
		NEED(post_recv(&p.b, round, 100000, 64) == 0);
		NEED(post(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 0, 50000, &p.b, 0) == 0);
		NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
		WORKS(p.b.rcq, round);
		NEED(holds(p.b.buf, 50000, round));
		WORKS(p.a.scq, 2);
	}
	pair_down(&p);
}

CASE("order.fence-waits-for-reads")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (unsigned round = 1; round <= 20; round++) {
		/* The send carries what the read before it fetches. */
		fill(p.b.buf + 4096, 1000, round);
		memset(p.a.buf, 0, 1000);
		NEED(post_recv(&p.b, 1, 0, 1000) == 0);
		NEED(post(&p.a, 2, IBV_WR_RDMA_READ, 0, 0, 1000, &p.b, 4096) == 0);
		NEED(send_of(&p.a, 3, IBV_SEND_FENCE | IBV_SEND_SIGNALED, 0, 1000) == 0);
		WORKS(p.a.scq, 3);
		WORKS(p.b.rcq, 1);
		NEED(holds(p.b.buf, 1000, round));
	}
	pair_down(&p);
}

CASE("order.receives-are-taken-in-order")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 30; i++)
		NEED(post_recv(&p.b, i, i * 100, 100) == 0);
	for (uint64_t i = 0; i < 30; i++) {
		p.a.buf[i] = (uint8_t)(i + 1);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, i, 1) == 0);
	}
	for (uint64_t i = 0; i < 30; i++) {
		WORKS(p.b.rcq, i);
		EQ(p.b.buf[i * 100], i + 1);
	}
	pair_down(&p);
}

CASE("order.the-last-octet-of-a-write-comes-last")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (unsigned round = 1; round <= 50; round++) {
		uint32_t length = 1000 * round;
		memset(p.a.buf, (int)round, length);
		NEED(post(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, length, &p.b, 0) == 0);
		volatile uint8_t *last = p.b.buf + length - 1;
		double end = deadline();
		while (*last != round && now() < end)
			;
		NEED(*last == round);
		for (uint32_t i = 0; i < length; i++)
			if (p.b.buf[i] != round) {
				CHECKF(false, "round %u: octet %u is not there with the last", round, i);
				case_end();
			}
		WORKS(p.a.scq, 1);
	}
	CHECK(1);
	pair_down(&p);
}

/* --- both ways at once */

CASE("both-ways.sends")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 30; i++) {
		NEED(post_recv(&p.a, i, 100000 + i * 2000, 2000) == 0);
		NEED(post_recv(&p.b, i, 100000 + i * 2000, 2000) == 0);
	}
	fill(p.a.buf, 60000, 1);
	fill(p.b.buf, 60000, 2);
	for (uint64_t i = 0; i < 30; i++) {
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, i * 2000, 2000) == 0);
		NEED(send_of(&p.b, i, IBV_SEND_SIGNALED, i * 2000, 2000) == 0);
	}
	for (uint64_t i = 0; i < 30; i++) {
		WORKS(p.a.rcq, i);
		WORKS(p.b.rcq, i);
	}
	CHECK(holds(p.a.buf + 100000, 60000, 2));
	CHECK(holds(p.b.buf + 100000, 60000, 1));
	pair_down(&p);
}

CASE("both-ways.reads-of-each-other")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, 1 << 20, 1);
	fill(p.b.buf, 1 << 20, 2);
	for (uint64_t i = 0; i < 4; i++) {
		NEED(post(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, (2 << 20) + (i << 18), 1 << 18, &p.b, i << 18) == 0);
		NEED(post(&p.b, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, (2 << 20) + (i << 18), 1 << 18, &p.a, i << 18) == 0);
	}
	for (uint64_t i = 0; i < 4; i++) {
		WORKS(p.a.scq, i);
		WORKS(p.b.scq, i);
	}
	CHECK(holds(p.a.buf + (2 << 20), 1 << 20, 2));
	CHECK(holds(p.b.buf + (2 << 20), 1 << 20, 1));
	pair_down(&p);
}

/* --- more reads than the connection lets be outstanding */

static void many_reads(long depth)
{
	struct pair p;

	if (depth > env.dev.max_qp_init_rd_atom)
		SKIP("the device reports max_qp_init_rd_atom %d", env.dev.max_qp_init_rd_atom);
	pair_up(&p, (struct wish){.max_reads = (int)depth});
	fill(p.b.buf, 50 * 1000, 8);
	for (uint64_t i = 0; i < 50; i++)
		NEED(post(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, i * 1000, 1000, &p.b, i * 1000) == 0);
	for (uint64_t i = 0; i < 50; i++)
		WORKS(p.a.scq, i);
	CHECK(holds(p.a.buf, 50 * 1000, 8));
	pair_down(&p);
}

CASES
{
	ADD(many_reads, 1, "reads.more-than-one-outstanding-wait");
	ADD(many_reads, 2, "reads.more-than-two-outstanding-wait");
	ADD(many_reads, 16, "reads.more-than-sixteen-outstanding-wait");
}

/* --- threads */

struct worker {
	struct pair *p;
	struct side *s;
	uint64_t first;
};

static void *post_many(void *of)
{
	struct worker *w = of;

	for (uint64_t i = 0; i < 200; i++) {
		int error;
		/* A full queue has room again when the other thread has reaped. */
		while ((error = post(w->s, w->first + i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64,
				     w->s == &w->p->a ? &w->p->b : &w->p->a, 4096)) == ENOMEM)
			sched_yield();
		if (error) {
			EQ(error, 0);
			return NULL;
		}
	}
	return NULL;
}

CASE("threads.two-post-to-one-queue-pair")
{
	struct pair p;
	pthread_t threads[2];
	uint64_t next[2] = {0, 1000};

	pair_up(&p, (struct wish){});
	struct worker workers[2] = {{&p, &p.a, 0}, {&p, &p.a, 1000}};
	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, post_many, &workers[i]) == 0);
	for (int i = 0; i < 400; i++) {
		struct ibv_wc wc = {};
		NEED(reap(p.a.scq, &wc));
		EQ(wc.status, IBV_WC_SUCCESS);
		/* Each thread's own in order. */
		int of = wc.wr_id >= 1000;
		EQ(wc.wr_id, next[of]++);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pair_down(&p);
}

CASE("threads.both-ends-at-once")
{
	struct pair p;
	pthread_t threads[2];

	pair_up(&p, (struct wish){});
	struct worker workers[2] = {{&p, &p.a, 0}, {&p, &p.b, 0}};
	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, post_many, &workers[i]) == 0);
	for (uint64_t i = 0; i < 200; i++) {
		WORKS(p.a.scq, i);
		WORKS(p.b.scq, i);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pair_down(&p);
}
