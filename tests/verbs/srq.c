/* Shared receive queues. */
#include "env.h"

static struct ibv_srq *a_srq(struct ibv_pd *pd, uint32_t depth, uint32_t sges)
{
	struct ibv_srq_init_attr init = {.srq_context = &env, .attr = {.max_wr = depth, .max_sge = sges}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	NEED(srq);
	CHECK(init.attr.max_wr >= depth && init.attr.max_sge >= sges);
	return srq;
}

CASE("srq.fields")
{
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_srq *srq = a_srq(pd, 10, 2);

	CHECK(srq->context == env.ctx && srq->pd == pd && srq->srq_context == &env);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq.query")
{
	need_srq();
	struct ibv_srq *srq = a_srq(a_pd(), 10, 2);
	struct ibv_srq_attr attr = {};

	EQ(ibv_query_srq(srq, &attr), 0);
	CHECK(attr.max_wr >= 10 && attr.max_sge >= 2);
	EQ(attr.srq_limit, 0);
	EQ(ibv_destroy_srq(srq), 0);
}

static void wrong_size(long at)
{
	need_srq();
	struct ibv_srq_init_attr init[] = {
		{.attr = {.max_wr = 0, .max_sge = 1}},
		{.attr = {.max_wr = (uint32_t)env.dev.max_srq_wr + 1, .max_sge = 1}},
		{.attr = {.max_wr = 4, .max_sge = (uint32_t)env.dev.max_srq_sge + 1}},
	};

	CHECK(ibv_create_srq(a_pd(), &init[at]) == NULL);
	CHECK(errno == EINVAL || errno == ENOMEM);
}

CASES
{
	ADD(wrong_size, 0, "srq.of-none-is-invalid");
	ADD(wrong_size, 1, "srq.of-too-many-is-invalid");
	ADD(wrong_size, 2, "srq.of-too-many-elements-is-invalid");
}

CASE("srq.overflow-is-refused-and-names-the-request")
{
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_srq *srq = a_srq(pd, 4, 1);
	struct ibv_mr *mr = ibv_reg_mr(pd, some_memory(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_srq_attr attr = {};
	NEED(mr && ibv_query_srq(srq, &attr) == 0);
	struct ibv_sge list = {(uintptr_t)mr->addr, 64, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &list, .num_sge = 1}, *bad = NULL;

	for (uint32_t i = 0; i < attr.max_wr; i++)
		EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
	EQ(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	CHECK(bad == &wr);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq.too-many-elements-are-refused")
{
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_srq *srq = a_srq(pd, 4, 1);
	struct ibv_srq_attr attr = {};
	struct ibv_mr *mr = ibv_reg_mr(pd, some_memory(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge list[64];

	NEED(mr && ibv_query_srq(srq, &attr) == 0);
	if (attr.max_sge >= 64)
		SKIP("the device gave %u elements for 1", attr.max_sge);
	for (int i = 0; i < 64; i++)
		list[i] = (struct ibv_sge){(uintptr_t)mr->addr, 1, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = (int)attr.max_sge + 1}, *bad = NULL;
	EQ(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

CASE("srq.posting-to-the-queue-pair-is-refused")
{
	need_srq();
	struct pair p;
	struct ibv_recv_wr wr = {}, *bad = NULL;

	pair_up(&p, (struct wish){.srq = 4});
	CHECK(ibv_post_recv(p.b.qp, &wr, &bad) != 0);
	CHECK(bad == &wr);
	pair_down(&p);
}

CASE("srq.receives")
{
	need_srq();
	struct pair p;

	pair_up(&p, (struct wish){.srq = 16});
	for (uint64_t i = 0; i < 8; i++)
		NEED(post_recv(&p.b, i, 64 * i, 64) == 0);
	for (uint64_t i = 0; i < 8; i++) {
		fill(p.a.buf, 64, (unsigned)i);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 64) == 0);
		WORKS(p.a.scq, i);
		struct ibv_wc wc = WORKS(p.b.rcq, i);
		EQ(wc.qp_num, p.b.qp->qp_num);
		EQ(wc.byte_len, 64);
		CHECK(holds(p.b.buf + 64 * i, 64, (unsigned)i));
	}
	pair_down(&p);
}

CASE("srq.room-comes-back")
{
	need_srq();
	struct pair p;
	struct ibv_srq_attr attr = {};

	pair_up(&p, (struct wish){.srq = 2});
	NEED(ibv_query_srq(p.b.srq, &attr) == 0);
	for (uint64_t round = 0; round < 5; round++) {
		for (uint64_t i = 0; i < attr.max_wr; i++)
			NEED(post_recv(&p.b, i, 0, 64) == 0);
		for (uint64_t i = 0; i < attr.max_wr; i++) {
			NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
			WORKS(p.a.scq, i);
			WORKS(p.b.rcq, i);
		}
	}
	pair_down(&p);
}

CASE("srq.list-stops-at-the-one-that-does-not-fit")
{
	need_srq();
	struct ibv_srq *srq = a_srq(a_pd(), 2, 1);
	struct ibv_srq_attr attr = {};
	NEED(ibv_query_srq(srq, &attr) == 0);
	struct ibv_recv_wr *wrs = calloc(attr.max_wr + 2, sizeof(*wrs)), *bad = NULL;

	for (uint32_t i = 0; i < attr.max_wr + 1; i++)
		wrs[i].next = &wrs[i + 1];
	EQ(ibv_post_srq_recv(srq, wrs, &bad), ENOMEM);
	CHECK(bad == &wrs[attr.max_wr]);
	free(wrs);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq.used-by-a-queue-pair-is-busy")
{
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_srq *srq = a_srq(pd, 4, 1);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = srq,
					.cap = {.max_send_wr = 4, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(qp);
	CHECK(qp->srq == srq);
	EQ(ibv_destroy_srq(srq), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_srq(srq), 0);
	EQ(ibv_destroy_cq(cq), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

/* --- the limit */

static void limit_event(struct pair *p)
{
	struct ibv_async_event event;

	NEED(comes(p->b.ctx->async_fd));
	NEED(ibv_get_async_event(p->b.ctx, &event) == 0);
	EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == p->b.srq);
	ibv_ack_async_event(&event);
}

CASE("srq.limit-is-told-once-when-fewer-are-left")
{
	need_srq();
	struct pair p;
	struct ibv_srq_attr attr = {.srq_limit = 3};

	pair_up(&p, (struct wish){.srq = 16});
	for (uint64_t i = 0; i < 5; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	EQ(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
	NEED(ibv_query_srq(p.b.srq, &attr) == 0);
	EQ(attr.srq_limit, 3);
	/* Three are left after two: not yet fewer than the limit. */
	for (uint64_t i = 0; i < 2; i++) {
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
		WORKS(p.b.rcq, i);
	}
	CHECK(!readable(p.b.ctx->async_fd, QUIET));
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 2);
	limit_event(&p);
	/* It is off now. */
	NEED(ibv_query_srq(p.b.srq, &attr) == 0);
	EQ(attr.srq_limit, 0);
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 3);
	CHECK(!readable(p.b.ctx->async_fd, QUIET));
	pair_down(&p);
}

CASE("srq.limit-set-below-what-is-there-already-is-told-at-once-or-at-the-next")
{
	need_srq();
	struct pair p;
	struct ibv_srq_attr attr = {.srq_limit = 4};

	pair_up(&p, (struct wish){.srq = 16});
	for (uint64_t i = 0; i < 2; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	EQ(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
	NEED(send_of(&p.a, 0, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 0);
	limit_event(&p);
	pair_down(&p);
}

CASE("srq.limit-above-the-depth-is-invalid")
{
	need_srq();
	struct ibv_srq *srq = a_srq(a_pd(), 4, 1);
	struct ibv_srq_attr attr = {};

	NEED(ibv_query_srq(srq, &attr) == 0);
	attr.srq_limit = attr.max_wr + 1;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) != 0);
	NEED(ibv_query_srq(srq, &attr) == 0);
	EQ(attr.srq_limit, 0);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq.resize-larger")
{
	need_srq();
	struct ibv_srq *srq = a_srq(a_pd(), 4, 1);
	struct ibv_srq_attr attr = {.max_wr = 100};
	int error = ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);

	if (!(env.dev.device_cap_flags & IBV_DEVICE_SRQ_RESIZE)) {
		CHECK(error != 0);
		SKIP("the device reports no resizing of shared queues (device_cap_flags), and refuses it");
	}
	EQ(error, 0);
	NEED(ibv_query_srq(srq, &attr) == 0);
	CHECK(attr.max_wr >= 100);
	struct ibv_recv_wr wr = {}, *bad;
	for (int i = 0; i < 100; i++)
		EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq.resize-below-what-is-there-is-refused")
{
	need_srq();
	if (!(env.dev.device_cap_flags & IBV_DEVICE_SRQ_RESIZE))
		SKIP("the device reports no resizing of shared queues (device_cap_flags)");
	struct ibv_srq *srq = a_srq(a_pd(), 50, 1);
	struct ibv_srq_attr attr = {.max_wr = 2};
	struct ibv_recv_wr wr = {}, *bad;

	for (int i = 0; i < 40; i++)
		NEED(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) != 0);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq.modify-of-unknown-attributes-is-invalid")
{
	need_srq();
	struct ibv_srq *srq = a_srq(a_pd(), 4, 1);
	struct ibv_srq_attr attr = {.max_wr = 4};

	CHECK(ibv_modify_srq(srq, &attr, 1 << 10) != 0);
	EQ(ibv_destroy_srq(srq), 0);
}

/* --- extended creation */

CASE("srq-ex.basic")
{
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 4, .max_sge = 1},
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					    .srq_type = IBV_SRQT_BASIC,
					    .pd = pd};
	struct ibv_srq *srq = ibv_create_srq_ex(env.ctx, &init);

	NEED(srq);
	CHECK(srq->pd == pd);
	EQ(ibv_destroy_srq(srq), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

CASE("srq-ex.domain-only")
{
	need_srq();
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = 4, .max_sge = 1}, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = a_pd()};
	struct ibv_srq *srq = ibv_create_srq_ex(env.ctx, &init);

	NEED(srq);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("srq-ex.without-a-domain-is-refused")
{
	struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 4, .max_sge = 1}};

	CHECK(ibv_create_srq_ex(env.ctx, &init) == NULL);
	CHECK(errno);
}

CASE("srq-ex.tag-matching-or-refused")
{
	struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 4, .max_sge = 1},
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
							 IBV_SRQ_INIT_ATTR_TM | IBV_SRQ_INIT_ATTR_CQ,
					    .srq_type = IBV_SRQT_TM,
					    .pd = a_pd(),
					    .cq = a_cq(8),
					    .tm_cap = {.max_num_tags = 4, .max_ops = 4}};

	if (env.devx.tm_caps.max_num_tags)
		SKIP("the device reports tag matching");
	errno = 0;
	CHECK(ibv_create_srq_ex(env.ctx, &init) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("srq.number-or-refused")
{
	need_srq();
	uint32_t number = 0;
	struct ibv_srq *srq = a_srq(a_pd(), 4, 1);
	int error = ibv_get_srq_num(srq, &number);

	/* Only XRC and tag-matching queues have one that means something. */
	CHECK(error == 0 || says_unsupported(error) || error == EINVAL);
	EQ(ibv_destroy_srq(srq), 0);
}

/* --- faults */

CASE("srq.an-element-with-a-wrong-key-is-a-local-error")
{
	need_srq();
	struct pair p;

	pair_up(&p, (struct wish){.srq = 4});
	struct ibv_sge list = {(uintptr_t)p.b.buf, 64, p.b.mr->lkey + 0x100};
	struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &list, .num_sge = 1}, *bad;
	NEED(ibv_post_srq_recv(p.b.srq, &wr, &bad) == 0);
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	COMPLETES(p.b.rcq, 7, IBV_WC_LOC_PROT_ERR);
}

CASE("srq.what-is-not-taken-is-not-flushed")
{
	need_srq();
	struct pair p;

	pair_up(&p, (struct wish){.srq = 4});
	for (uint64_t i = 0; i < 4; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	CHECK(quiet(p.b.rcq));
}

CASE("srq.last-request-reached-event")
{
	need_srq();
	struct pair p;
	struct ibv_async_event event;

	pair_up(&p, (struct wish){.srq = 4});
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	NEED(comes(p.b.ctx->async_fd));
	NEED(ibv_get_async_event(p.b.ctx, &event) == 0);
	EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(event.element.qp == p.b.qp);
	ibv_ack_async_event(&event);
}
