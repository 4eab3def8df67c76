/* Completion queues: sizes, polling, resizing, moderation, overflow. */
#include "env.h"

static void size(long cqe)
{
	struct ibv_cq *cq = ibv_create_cq(env.ctx, (int)cqe, &env, NULL, 0);

	if (cqe > env.dev.max_cqe)
		SKIP("the device reports max_cqe %d", env.dev.max_cqe);
	NEED(cq);
	CHECK(cq->cqe >= cqe);
	CHECK(cq->context == env.ctx && cq->cq_context == &env && cq->channel == NULL);
	EQ(ibv_destroy_cq(cq), 0);
}

CASES
{
	static const int sizes[] = {1, 2, 3, 7, 8, 100, 1023, 1024, 4096, 32768};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		ADD(size, sizes[i], "cq.of-%d", sizes[i]);
}

CASE("cq.of-the-most-the-device-has")
{
	struct ibv_cq *cq = ibv_create_cq(env.ctx, env.dev.max_cqe, NULL, NULL, 0);

	NEED(cq);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("cq.of-more-than-the-device-has")
{
	CHECK(ibv_create_cq(env.ctx, env.dev.max_cqe + 1, NULL, NULL, 0) == NULL);
	CHECK(errno == EINVAL || errno == ENOMEM);
}

CASE("cq.of-none-is-invalid")
{
	NONE(ibv_create_cq(env.ctx, 0, NULL, NULL, 0), EINVAL);
}

CASE("cq.of-less-than-none-is-invalid")
{
	CHECK(ibv_create_cq(env.ctx, -5, NULL, NULL, 0) == NULL);
}

CASE("cq.vector-past-the-last-is-invalid")
{
	NONE(ibv_create_cq(env.ctx, 8, NULL, NULL, env.ctx->num_comp_vectors), EINVAL);
}

CASE("cq.every-vector")
{
	for (int i = 0; i < env.ctx->num_comp_vectors && i < 64; i++) {
		struct ibv_cq *cq = ibv_create_cq(env.ctx, 8, NULL, NULL, i);
		CHECK(cq);
		if (cq)
			EQ(ibv_destroy_cq(cq), 0);
	}
}

CASE("cq.used-by-a-queue-pair-is-busy")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qp = a_qp(a_pd(), cq);

	EQ(ibv_destroy_cq(cq), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("cq.polled-empty")
{
	struct ibv_wc wc[4];
	struct ibv_cq *cq = a_cq(8);

	EQ(ibv_poll_cq(cq, 4, wc), 0);
	EQ(ibv_poll_cq(cq, 0, wc), 0);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("cq.polled-in-parts")
{
	struct pair p;
	struct ibv_wc wc[8] = {};
	int got = 0;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 5; i++) {
		NEED(post_recv(&p.b, i, 64 * i, 64) == 0);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
	}
	/* Two, and then what is left. */
	double end = deadline();
	while (got < 2 && now() < end)
		got += ibv_poll_cq(p.b.rcq, 2 - got, wc + got);
	EQ(got, 2);
	while (got < 5 && now() < end)
		got += ibv_poll_cq(p.b.rcq, 8 - got, wc + got);
	EQ(got, 5);
	for (uint64_t i = 0; i < 5; i++)
		EQ(wc[i].wr_id, i);
	CHECK(quiet(p.b.rcq));
	pair_down(&p);
}

CASE("cq.fields-of-a-receive")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 0x1122334455667788, 0, 100) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 33) == 0);
	struct ibv_wc wc = WORKS(p.b.rcq, 0x1122334455667788);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, 33);
	EQ(wc.qp_num, p.b.qp->qp_num);
	EQ(wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV | IBV_WC_GRH), 0);
	if (env.weft)
		EQ(wc.wc_flags, 0);
	pair_down(&p);
}

static void send_side(long op)
{
	static const enum ibv_wr_opcode wr[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	static const enum ibv_wc_opcode wc[] = {IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ};
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 100) == 0);
	NEED(post(&p.a, 2, wr[op], IBV_SEND_SIGNALED, 0, 100, &p.b, 0) == 0);
	struct ibv_wc got = WORKS(p.a.scq, 2);
	EQ(got.opcode, wc[op]);
	EQ(got.qp_num, p.a.qp->qp_num);
	if (wr[op] == IBV_WR_RDMA_READ)
		EQ(got.byte_len, 100);
	pair_down(&p);
}

CASES
{
	ADD(send_side, 0, "cq.fields-of-a-send");
	ADD(send_side, 1, "cq.fields-of-a-write");
	ADD(send_side, 2, "cq.fields-of-a-read");
}

CASE("cq.one-for-sends-and-receives")
{
	struct pair p;
	struct ibv_cq *cq;
	int seen = 0;

	need_cm();
	/* b's queue pair on one queue for both. */
	struct wish w = {};
	uint8_t reads = 1;
	struct rdma_conn_param param = {.responder_resources = reads, .initiator_depth = reads};
	p = (struct pair){};
	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 1);
	p.a.id = towards(p.events, p.listener);
	side_objects(&p.a, &w, false);
	struct ibv_qp_init_attr init = init_of(&p.a, &w);
	cq = init.recv_cq = init.send_cq;
	NEED(rdma_create_qp(p.a.id, p.a.pd, &init) == 0);
	p.a.qp = p.a.id->qp;
	NEED(rdma_connect(p.a.id, &param) == 0);
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	side_objects(&p.b, &w, true);
	init = init_of(&p.b, &w);
	NEED(rdma_create_qp(p.b.id, p.b.pd, &init) == 0);
	p.b.qp = p.b.id->qp;
	NEED(post_recv(&p.a, 10, 0, 64) == 0);
	NEED(post_recv(&p.b, 20, 0, 64) == 0);
	NEED(rdma_accept(p.b.id, &param) == 0);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	NEED(send_of(&p.a, 11, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 20);
	NEED(send_of(&p.b, 21, IBV_SEND_SIGNALED, 0, 8) == 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = {};
		NEED(reap(cq, &wc));
		EQ(wc.status, IBV_WC_SUCCESS);
		seen |= wc.wr_id == 10 && wc.opcode == IBV_WC_RECV ? 1 : 0;
		seen |= wc.wr_id == 11 && wc.opcode == IBV_WC_SEND ? 2 : 0;
	}
	EQ(seen, 3);
	pair_down(&p);
}

CASE("cq.completions-survive-their-queue-pair-or-go-with-it")
{
	struct pair p;
	struct ibv_wc wc;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	sleep_ms(5);
	if (p.a.id)
		rdma_destroy_qp(p.a.id);
	else
		NEED(ibv_destroy_qp(p.a.qp) == 0);
	p.a.qp = NULL;
	int got = ibv_poll_cq(p.a.scq, 1, &wc);
	CHECK(got == 0 || (got == 1 && wc.wr_id == 2 && !env.weft));
	pair_down(&p);
}

/* --- resizing */

CASE("resize.larger")
{
	struct ibv_cq *cq = a_cq(8);
	int error = ibv_resize_cq(cq, 100);

	if (says_unsupported(error))
		SKIP("the device refuses ibv_resize_cq (%s)", strerror(error));
	EQ(error, 0);
	CHECK(cq->cqe >= 100);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("resize.smaller")
{
	struct ibv_cq *cq = a_cq(100);
	int error = ibv_resize_cq(cq, 8);

	if (says_unsupported(error))
		SKIP("the device refuses ibv_resize_cq (%s)", strerror(error));
	EQ(error, 0);
	CHECK(cq->cqe >= 8);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("resize.to-none-or-too-many-is-invalid")
{
	struct ibv_cq *cq = a_cq(8);
	int before = cq->cqe;

	if (says_unsupported(ibv_resize_cq(cq, 16)))
		SKIP("the device refuses ibv_resize_cq");
	before = cq->cqe;
	EQ(ibv_resize_cq(cq, 0), EINVAL);
	CHECK(ibv_resize_cq(cq, env.dev.max_cqe + 1) != 0);
	EQ(cq->cqe, before);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("resize.keeps-what-is-in-it")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 4; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	for (uint64_t i = 0; i < 4; i++)
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
	for (uint64_t i = 0; i < 4; i++)
		WORKS(p.a.scq, i);
	WORKS(p.b.rcq, 0);
	int error = ibv_resize_cq(p.b.rcq, 2000);
	if (says_unsupported(error))
		SKIP("the device refuses ibv_resize_cq (%s)", strerror(error));
	EQ(error, 0);
	for (uint64_t i = 1; i < 4; i++)
		WORKS(p.b.rcq, i);
	pair_down(&p);
}

CASE("resize.below-what-is-in-it-is-invalid")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	/* The event is of the last: all are in the queue then. */
	EQ(ibv_req_notify_cq(p.b.rcq, 1), 0);
	for (uint64_t i = 0; i < 40; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED | (i == 39 ? IBV_SEND_SOLICITED : 0), 0, 8) == 0);
	}
	for (uint64_t i = 0; i < 40; i++)
		WORKS(p.a.scq, i);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 0);
	int error = ibv_resize_cq(p.b.rcq, 1);
	if (says_unsupported(error))
		SKIP("the device refuses ibv_resize_cq (%s)", strerror(error));
	/* A device may round up. */
	CHECK(error != 0 || p.b.rcq->cqe >= 39);
	for (uint64_t i = 1; i < 40; i++)
		WORKS(p.b.rcq, i);
	pair_down(&p);
}

/* --- moderation */

CASE("moderation.works-or-is-reported-absent")
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 4, .cq_period = 10}};
	struct ibv_cq *cq = a_cq(8);
	int error = ibv_modify_cq(cq, &attr);

	if (env.devx.cq_mod_caps.max_cq_count)
		EQ(error, 0);
	else
		CHECK(says_unsupported(error) || error == EINVAL);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("moderation.beyond-the-limit-is-refused")
{
	if (!env.devx.cq_mod_caps.max_cq_count)
		SKIP("the device reports no moderation (cq_mod_caps)");
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 0xffff, .cq_period = 0xffff}};
	struct ibv_cq *cq = a_cq(8);
	if (env.devx.cq_mod_caps.max_cq_count == 0xffff && env.devx.cq_mod_caps.max_cq_period == 0xffff)
		SKIP("the device takes every count and period");
	CHECK(ibv_modify_cq(cq, &attr) != 0);
}

/* --- overflow */

CASE("overflow.is-an-asynchronous-event")
{
	struct pair p;
	struct ibv_async_event event;

	pair_up(&p, (struct wish){.b_rcqe = 1});
	int room = p.b.rcq->cqe;
	if (room > 60)
		SKIP("the device gave %d entries for 1", room);
	for (uint64_t i = 0; i < (uint64_t)room + 2; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	for (uint64_t i = 0; i < (uint64_t)room + 2; i++)
		send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8);
	NEED(comes(p.b.ctx->async_fd));
	NEED(ibv_get_async_event(p.b.ctx, &event) == 0);
	/* A queue pair that is hurt by it has an event of its own; either may come first. */
	if (event.event_type == IBV_EVENT_QP_FATAL) {
		ibv_ack_async_event(&event);
		NEED(comes(p.b.ctx->async_fd));
		NEED(ibv_get_async_event(p.b.ctx, &event) == 0);
	}
	EQ(event.event_type, IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == p.b.rcq);
	ibv_ack_async_event(&event);
}

CASE("overflow.of-sends-ends-the-queue")
{
	need_weft();
	struct pair p;
	struct ibv_async_event event;
	struct ibv_wc wc;

	pair_up(&p, (struct wish){.a_scqe = 2});
	int room = p.a.scq->cqe;
	for (int i = 0; i <= room; i++)
		EQ(post(&p.a, (uint64_t)i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.b, 0), 0);
	NEED(comes(p.a.ctx->async_fd));
	NEED(ibv_get_async_event(p.a.ctx, &event) == 0);
	EQ(event.event_type, IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == p.a.scq);
	int got;
	while ((got = ibv_poll_cq(p.a.scq, 1, &wc)) > 0)
		;
	CHECK(got < 0);
	ibv_ack_async_event(&event);
	pair_down(&p);
}

static void acknowledge(void *of)
{
	ibv_ack_async_event(of);
}

CASE("overflow.destroying-the-queue-waits-for-the-acknowledgement")
{
	need_weft();
	struct pair p;
	struct ibv_async_event event;

	pair_up(&p, (struct wish){.a_scqe = 2});
	int room = p.a.scq->cqe;
	for (int i = 0; i <= room; i++)
		EQ(post(&p.a, (uint64_t)i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.b, 0), 0);
	NEED(comes(p.a.ctx->async_fd));
	NEED(ibv_get_async_event(p.a.ctx, &event) == 0);
	if (p.a.id)
		rdma_destroy_qp(p.a.id);
	else
		EQ(ibv_destroy_qp(p.a.qp), 0);
	p.a.qp = NULL;
	struct later later = {.acknowledge = acknowledge, .of = &event};
	acknowledge_later(&later);
	EQ(ibv_destroy_cq(p.a.scq), 0);
	CHECK(was_waited_for(&later));
	p.a.scq = NULL;
	pair_down(&p);
}
