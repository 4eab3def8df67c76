/* Posting: states, flushing, lists, full and empty queues. */
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

/* --- an empty receive queue */

CASE("no-receive.waits-or-ends-the-connection")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	if (env.iwarp) {
		/* RFC 5040 has no "receiver not ready": either the RNIC holds the message, or it terminates. */
		CHECK(quiet(p.b.rcq));
		NEED(post_recv(&p.b, 2, 0, 64) == 0);
		struct ibv_wc wc = {};
		NEED(reap(p.b.rcq, &wc));
		EQ(wc.wr_id, 2);
		if (wc.status != IBV_WC_SUCCESS) {
			EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
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
	struct pair p;

	pair_apart(&p, (struct wish){});
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
