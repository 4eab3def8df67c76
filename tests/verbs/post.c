/* Posting: states, lists, limits, flags; and what arrives. */
#include "env.h"

/* --- states in which a post is refused, and in which it waits */

static int try_recv(struct ibv_qp *qp, struct ibv_recv_wr **bad)
{
	static struct ibv_recv_wr wr;

	return ibv_post_recv(qp, &wr, bad);
}

static int try_send(struct ibv_qp *qp, struct ibv_send_wr **bad)
{
	static struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .wr_id = 77};

	return ibv_post_send(qp, &wr, bad);
}

CASE("state.receive-in-reset-is-refused")
{
	struct ibv_recv_wr *bad = NULL;

	/* Some devices of the kernel take it; the specification (10.8.3.3) does not. */
	CHECK(try_recv(a_qp(a_pd(), a_cq(8)), &bad) != 0);
	CHECK(bad);
}

CASE("state.send-in-reset-is-refused")
{
	struct ibv_send_wr *bad = NULL;

	CHECK(try_send(a_qp(a_pd(), a_cq(8)), &bad) != 0);
	CHECK(bad);
}

CASE("state.send-in-init-is-refused")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_attr attr = attr_init();
	struct ibv_send_wr *bad = NULL;

	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	CHECK(try_send(qp, &bad) != 0);
	CHECK(bad);
}

CASE("state.receive-in-init-waits")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qp = a_qp(a_pd(), cq);
	struct ibv_qp_attr attr = attr_init();
	struct ibv_recv_wr *bad = NULL;

	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	EQ(try_recv(qp, &bad), 0);
	CHECK(quiet(cq));
}

CASE("state.send-in-error-is-flushed")
{
	struct pair p;
	struct ibv_send_wr *bad = NULL;

	pair_up(&p, (struct wish){});
	NEED(to_state(p.a.qp, IBV_QPS_ERR) == 0);
	NEED(try_send(p.a.qp, &bad) == 0);
	COMPLETES(p.a.scq, 77, IBV_WC_WR_FLUSH_ERR);
}

CASE("state.receive-in-error-is-flushed")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(to_state(p.a.qp, IBV_QPS_ERR) == 0);
	NEED(post_recv(&p.a, 5, 0, 64) == 0);
	COMPLETES(p.a.rcq, 5, IBV_WC_WR_FLUSH_ERR);
}

/* --- flushing */

CASE("flush.in-order-and-completely")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 20; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	for (uint64_t i = 0; i < 20; i++)
		COMPLETES(p.b.rcq, i, IBV_WC_WR_FLUSH_ERR);
	CHECK(quiet(p.b.rcq));
}

CASE("flush.behind-what-succeeded")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 5; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	for (uint64_t i = 0; i < 2; i++)
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.a.scq, 0);
	WORKS(p.a.scq, 1);
	WORKS(p.b.rcq, 0);
	WORKS(p.b.rcq, 1);
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	for (uint64_t i = 2; i < 5; i++)
		COMPLETES(p.b.rcq, i, IBV_WC_WR_FLUSH_ERR);
}

CASE("flush.of-sends-behind-a-local-fault")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge bad_key = {(uintptr_t)p.a.buf, 8, p.a.mr->lkey + 0x100}, good = sge(&p.a, 0, 8);
	struct ibv_send_wr wr[3] = {
		{.wr_id = 1, .next = &wr[1], .sg_list = &bad_key, .num_sge = 1, .opcode = IBV_WR_SEND},
		{.wr_id = 2, .next = &wr[2], .sg_list = &good, .num_sge = 1, .opcode = IBV_WR_SEND},
		{.wr_id = 3, .sg_list = &good, .num_sge = 1, .opcode = IBV_WR_RDMA_READ},
	};
	struct ibv_send_wr *bad;
	NEED(ibv_post_send(p.a.qp, wr, &bad) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	COMPLETES(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	COMPLETES(p.a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	EQ(state_of(p.a.qp), IBV_QPS_ERR);
}

CASE("flush.unsignalled-sends-complete-too")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(to_state(p.a.qp, IBV_QPS_ERR) == 0);
	for (uint64_t i = 0; i < 5; i++)
		NEED(send_of(&p.a, i, 0, 0, 8) == 0);
	for (uint64_t i = 0; i < 5; i++)
		COMPLETES(p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
}

/* --- lists */

CASE("list.stops-at-the-wrong-one")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 3; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	struct ibv_sge good = sge(&p.a, 0, 8);
	struct ibv_send_wr wr[4] = {};
	for (int i = 0; i < 4; i++)
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i, .next = i < 3 ? &wr[i + 1] : NULL,
					     .sg_list = &good, .num_sge = 1, .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED};
	wr[2].opcode = (enum ibv_wr_opcode)99;
	struct ibv_send_wr *bad = NULL;
	CHECK(ibv_post_send(p.a.qp, wr, &bad) != 0);
	CHECK(bad == &wr[2]);
	/* Those in front are on their way, those behind are not. */
	WORKS(p.a.scq, 0);
	WORKS(p.a.scq, 1);
	CHECK(quiet(p.a.scq));
	pair_down(&p);
}

CASE("list.of-receives-stops-at-the-wrong-one")
{
	struct pair p;

	pair_up(&p, (struct wish){.sges = 2});
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	NEED(ibv_query_qp(p.b.qp, &attr, IBV_QP_CAP, &init) == 0);
	struct ibv_sge many[300];
	NEED(attr.cap.max_recv_sge < 300);
	for (int i = 0; i < 300; i++)
		many[i] = sge(&p.b, 0, 1);
	struct ibv_recv_wr wr[3] = {
		{.wr_id = 0, .next = &wr[1], .sg_list = many, .num_sge = 1},
		{.wr_id = 1, .next = &wr[2], .sg_list = many, .num_sge = (int)attr.cap.max_recv_sge + 1},
		{.wr_id = 2, .sg_list = many, .num_sge = 1},
	};
	struct ibv_recv_wr *bad = NULL;
	EQ(ibv_post_recv(p.b.qp, wr, &bad), EINVAL);
	CHECK(bad == &wr[1]);
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	COMPLETES(p.b.rcq, 0, IBV_WC_WR_FLUSH_ERR);
	CHECK(quiet(p.b.rcq));
}

CASE("list.of-many-arrives-in-order")
{
	enum { MANY = 50 };
	struct pair p;
	struct ibv_send_wr wr[MANY], *bad;
	struct ibv_sge list[MANY];

	pair_up(&p, (struct wish){});
	fill(p.a.buf, MANY * 100, 1);
	for (uint64_t i = 0; i < MANY; i++) {
		NEED(post_recv(&p.b, i, 100 * i, 100) == 0);
		list[i] = sge(&p.a, 100 * i, 100);
		wr[i] = (struct ibv_send_wr){.wr_id = i, .next = i < MANY - 1 ? &wr[i + 1] : NULL, .sg_list = &list[i],
					     .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	}
	NEED(ibv_post_send(p.a.qp, wr, &bad) == 0);
	for (uint64_t i = 0; i < MANY; i++) {
		WORKS(p.b.rcq, i);
		WORKS(p.a.scq, i);
	}
	CHECK(holds(p.b.buf, MANY * 100, 1));
	pair_down(&p);
}

/* --- full queues */

CASE("full.receive-queue-is-refused-and-named")
{
	struct pair p;

	pair_up(&p, (struct wish){.depth = 4});
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	NEED(ibv_query_qp(p.b.qp, &attr, IBV_QP_CAP, &init) == 0);
	for (uint64_t i = 0; i < attr.cap.max_recv_wr; i++)
		EQ(post_recv(&p.b, i, 0, 64), 0);
	struct ibv_recv_wr wr = {}, *bad = NULL;
	EQ(ibv_post_recv(p.b.qp, &wr, &bad), ENOMEM);
	CHECK(bad == &wr);
	/* One used makes room for one. */
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 0);
	EQ(post_recv(&p.b, 9, 0, 64), 0);
	pair_down(&p);
}

CASE("full.send-queue-is-refused-and-named")
{
	struct pair p;

	pair_up(&p, (struct wish){.depth = 8});
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	unsigned room = attr.cap.max_send_wr;
	struct ibv_sge list = sge(&p.a, 0, 1 << 20);
	struct ibv_send_wr *wrs = calloc(room + 1, sizeof(*wrs)), *bad = NULL;
	/* Reads of a megabyte: none is through before the list is posted. */
	for (unsigned i = 0; i <= room; i++)
		wrs[i] = (struct ibv_send_wr){.wr_id = i, .next = i < room ? &wrs[i + 1] : NULL, .sg_list = &list,
					      .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
					      .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}};
	EQ(ibv_post_send(p.a.qp, wrs, &bad), ENOMEM);
	CHECK(bad == &wrs[room]);
	for (unsigned i = 0; i < room; i++)
		WORKS(p.a.scq, i);
	free(wrs);
	pair_down(&p);
}

/* --- elements */

static void elements(long count)
{
	struct pair p;
	struct ibv_sge from[64], to[64];

	if (count > env.dev.max_sge || count > 64)
		SKIP("the device reports max_sge %d", env.dev.max_sge);
	pair_up(&p, (struct wish){.sges = (int)count});
	uint32_t total = 0;
	for (long i = 0; i < count; i++) {
		/* Odd sizes, and not one behind the other. */
		from[i] = sge(&p.a, 1000 * (size_t)i, (uint32_t)(i * 7 + 1));
		fill(p.a.buf + 1000 * i, from[i].length, (unsigned)i);
		to[i] = sge(&p.b, 500 * (size_t)(count - i), (uint32_t)(i * 7 + 1));
		total += from[i].length;
	}
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = to, .num_sge = (int)count}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = from, .num_sge = (int)count, .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	NEED(ibv_post_recv(p.b.qp, &recv, &bad_recv) == 0);
	NEED(ibv_post_send(p.a.qp, &send, &bad_send) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, total);
	WORKS(p.a.scq, 2);
	for (long i = 0; i < count; i++)
		CHECK(holds((uint8_t *)(uintptr_t)to[i].addr, to[i].length, (unsigned)i));
	pair_down(&p);
}

CASES
{
	static const int counts[] = {1, 2, 3, 4, 8, 16, 30, 32};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		ADD(elements, counts[i], "elements.%d", counts[i]);
}

CASE("elements.more-than-the-queue-pair-has-are-refused")
{
	struct pair p;

	pair_up(&p, (struct wish){.sges = 2});
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	struct ibv_sge many[300];
	NEED(attr.cap.max_send_sge < 300);
	for (int i = 0; i < 300; i++)
		many[i] = sge(&p.a, 0, 1);
	struct ibv_send_wr wr = {.sg_list = many, .num_sge = (int)attr.cap.max_send_sge + 1, .opcode = IBV_WR_SEND},
			   *bad = NULL;
	CHECK(ibv_post_send(p.a.qp, &wr, &bad) != 0);
	CHECK(bad == &wr);
	pair_down(&p);
}

CASE("elements.of-zero-octets-among-others")
{
	struct pair p;

	pair_up(&p, (struct wish){.sges = 3});
	fill(p.a.buf, 20, 1);
	struct ibv_sge list[3] = {sge(&p.a, 0, 10), sge(&p.a, 0, 10), sge(&p.a, 10, 10)};
	list[1].length = 0;
	/* A length of 0 in an element means nothing here (it means 2^31 in the specification's wire form). */
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = list, .num_sge = 3, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 20);
	CHECK(holds(p.b.buf, 20, 1));
	pair_down(&p);
}

/* --- inline data */

CASE("inline.is-taken-at-the-post")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 32});
	fill(p.a.buf, 32, 6);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 32) == 0);
	memset(p.a.buf, 0, 32);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 32, 6));
	pair_down(&p);
}

CASE("inline.needs-no-key")
{
	struct pair p;
	char words[] = "not registered";

	pair_up(&p, (struct wish){.inline_data = 32});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list = {(uintptr_t)words, sizeof(words), 0xdeadbeef};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.b.rcq, 1);
	SAME(p.b.buf, words, sizeof(words));
	pair_down(&p);
}

CASE("inline.in-a-write")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 32});
	fill(p.a.buf, 32, 6);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 32, &p.b, 100) == 0);
	memset(p.a.buf, 0, 32);
	WORKS(p.a.scq, 2);
	NEED(post_recv(&p.b, 1, 0, 1) == 0);
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 1) == 0);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf + 100, 32, 6));
	pair_down(&p);
}

CASE("inline.more-than-there-is-room-is-refused")
{
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_up(&p, (struct wish){.inline_data = 16});
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	NEED(attr.cap.max_inline_data >= 16);
	struct ibv_sge list = sge(&p.a, 0, attr.cap.max_inline_data + 1);
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE},
			   *bad = NULL;
	CHECK(ibv_post_send(p.a.qp, &wr, &bad) != 0);
	CHECK(bad == &wr);
	pair_down(&p);
}

CASE("inline.as-much-as-there-is-room")
{
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_up(&p, (struct wish){.inline_data = 16});
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	uint32_t room = attr.cap.max_inline_data;
	fill(p.a.buf, room, 6);
	NEED(post_recv(&p.b, 1, 0, room) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, room) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, room);
	CHECK(holds(p.b.buf, room, 6));
	pair_down(&p);
}

CASE("inline.of-several-elements")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 30, .sges = 3});
	fill(p.a.buf, 30, 6);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list[3] = {sge(&p.a, 0, 5), sge(&p.a, 5, 20), sge(&p.a, 25, 5)};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = list, .num_sge = 3, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 30);
	CHECK(holds(p.b.buf, 30, 6));
	pair_down(&p);
}

CASE("inline.of-nothing")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 16});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 0) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 0);
	pair_down(&p);
}

CASE("inline.of-a-read-is-refused")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 16});
	CHECK(post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 8, &p.b, 0) != 0);
	pair_down(&p);
}

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
		double end = now() + 5;
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

/* --- sizes, for each operation */

static const uint32_t sizes[] = {0,    1,    2,	   3,	 4,    7,     8,     63,    64,	    65,	     255,     256,
				 1023, 1024, 1025, 1447, 1448, 1449,  2047,  2048,  4095,    4096,    4097,    8192,
				 9000, 9001, 16384, 65535, 65536, 65537, 131072, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 1};

static void send_size(long size)
{
	struct pair p;
	uint32_t length = (uint32_t)size;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, length, 3);
	p.b.buf[length] = 0xee;
	NEED(post_recv(&p.b, 1, 0, length) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, length) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, length);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.b.buf, length, 3));
	EQ(p.b.buf[length], 0xee);
	pair_down(&p);
}

static void write_size(long size)
{
	struct pair p;
	uint32_t length = (uint32_t)size;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, length, 3);
	p.b.buf[99] = p.b.buf[100 + length] = 0xee;
	NEED(post_recv(&p.b, 1, BUF - 64, 64) == 0);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, length, &p.b, 100) == 0);
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 1) == 0);
	WORKS(p.a.scq, 2);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf + 100, length, 3));
	CHECK(p.b.buf[99] == 0xee && p.b.buf[100 + length] == 0xee);
	pair_down(&p);
}

static void read_size(long size)
{
	struct pair p;
	uint32_t length = (uint32_t)size;

	pair_up(&p, (struct wish){});
	fill(p.b.buf + 7, length, 3);
	p.a.buf[99] = p.a.buf[100 + length] = 0xee;
	NEED(post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 100, length, &p.b, 7) == 0);
	EQ(WORKS(p.a.scq, 2).byte_len, length);
	CHECK(holds(p.a.buf + 100, length, 3));
	CHECK(p.a.buf[99] == 0xee && p.a.buf[100 + length] == 0xee);
	pair_down(&p);
}

CASES
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		ADD(send_size, (long)sizes[i], "size.send-%u", sizes[i]);
		ADD(write_size, (long)sizes[i], "size.write-%u", sizes[i]);
		ADD(read_size, (long)sizes[i], "size.read-%u", sizes[i]);
	}
}

static void mtu_edges(long at)
{
	struct pair p;
	uint32_t mtu = 128u << env.port.active_mtu, length = mtu * (1 + (uint32_t)at / 3) + (uint32_t)(at % 3) - 1;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, length, 3);
	NEED(post_recv(&p.b, 1, 0, length) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, length) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, length);
	CHECK(holds(p.b.buf, length, 3));
	pair_down(&p);
}

CASES
{
	for (long i = 0; i < 6; i++)
		ADD(mtu_edges, i, "size.send-of-%ld-mtu%s", 1 + i / 3, i % 3 == 0 ? "-less-1" : i % 3 == 2 ? "-and-1" : "");
}

CASE("size.longer-than-the-receive-is-a-local-length-error")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	p.b.buf[64] = 0xee;
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 65) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	EQ(p.b.buf[64], 0xee);
	CHECK(becomes(p.b.qp, IBV_QPS_ERR));
}

CASE("size.longer-than-the-receive-is-an-error-at-the-sender")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 65) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	CHECK(becomes(p.a.qp, IBV_QPS_ERR));
	struct ibv_wc wc = {};
	/* On iWARP the send may have completed when its octets were handed over. */
	if (reap(p.a.scq, &wc)) {
		EQ(wc.wr_id, 2);
		CHECKF(env.iwarp ? wc.status != IBV_WC_RNR_RETRY_EXC_ERR : wc.status == IBV_WC_REM_INV_REQ_ERR,
		       "status %s", ibv_wc_status_str(wc.status));
	}
}

CASE("size.shorter-than-the-receive-leaves-the-rest")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	memset(p.b.buf, 0xee, 128);
	NEED(post_recv(&p.b, 1, 0, 128) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 5) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 5);
	for (int i = 5; i < 128; i++)
		EQ(p.b.buf[i], 0xee);
	pair_down(&p);
}

CASE("size.above-the-limit-of-the-port-is-refused")
{
	struct pair p;

	if (env.port.max_msg_sz >= 1u << 31)
		SKIP("the port reports max_msg_sz %u", env.port.max_msg_sz);
	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, BUF) == 0);
	struct ibv_sge list = sge(&p.a, 0, env.port.max_msg_sz + 1);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (!error) {
		struct ibv_wc wc = {};
		NEED(reap(p.a.scq, &wc));
		CHECKF(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_PROT_ERR, "status %s",
		       ibv_wc_status_str(wc.status));
	} else {
		CHECK(bad == &wr);
	}
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

/* --- an empty receive queue */

CASE("no-receive.waits-or-ends-the-connection")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	if (env.iwarp) {
		/* RFC 5040 has no "receiver not ready": either the RNIC holds the message, or it terminates. */
		sleep_ms(20);
		if (state_of(p.b.qp) == IBV_QPS_RTS) {
			NEED(post_recv(&p.b, 2, 0, 64) == 0);
			WORKS(p.b.rcq, 2);
		} else {
			CHECK(becomes(p.a.qp, IBV_QPS_ERR));
		}
		return;
	}
	/* rnr_retry 7 waits without end. */
	sleep_ms(100);
	EQ(state_of(p.a.qp), IBV_QPS_RTS);
	NEED(post_recv(&p.b, 2, 0, 64) == 0);
	WORKS(p.b.rcq, 2);
	WORKS(p.a.scq, 1);
	pair_down(&p);
}

CASE("no-receive.with-no-retries-is-an-error")
{
	need_infiniband();
	struct pair p = {};
	struct wish w = {};

	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a;
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		NEED(s->qp = ibv_create_qp(s->pd, &init));
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *own = i ? p.b.qp : p.a.qp;
		struct end_point self = end_of(own), other = end_of(i ? p.a.qp : p.b.qp);
		struct ibv_qp_attr attr = attr_init();
		NEED(ibv_modify_qp(own, &attr, mask_init(IBV_QPT_RC)) == 0);
		attr = attr_rtr(&other);
		attr.min_rnr_timer = 1;
		NEED(ibv_modify_qp(own, &attr, mask_rtr(IBV_QPT_RC)) == 0);
		attr = attr_rts(&self);
		attr.rnr_retry = 0;
		NEED(ibv_modify_qp(own, &attr, mask_rts(IBV_QPT_RC)) == 0);
	}
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	EQ(state_of(p.a.qp), IBV_QPS_ERR);
}

/* --- threads */

struct worker {
	struct pair *p;
	struct side *s;
	uint64_t first;
	int errors;
};

static void *post_many(void *of)
{
	struct worker *w = of;

	for (uint64_t i = 0; i < 200; i++)
		while (post(w->s, w->first + i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64,
			    w->s == &w->p->a ? &w->p->b : &w->p->a, 4096) != 0)
			sched_yield();
	return NULL;
}

CASE("threads.two-post-to-one-queue-pair")
{
	struct pair p;
	pthread_t threads[2];
	uint64_t next[2] = {0, 1000};

	pair_up(&p, (struct wish){});
	struct worker workers[2] = {{&p, &p.a, 0, 0}, {&p, &p.a, 1000, 0}};
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
	struct worker workers[2] = {{&p, &p.a, 0, 0}, {&p, &p.b, 0, 0}};
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
