/* The states of queue pairs, and every transition. */
#include "env.h"

/* --- transitions of the InfiniBand table (man ibv_modify_qp; the InfiniBand specification, 11.2.5.2 and 10.3.1) */

static const char *const state_names[] = {"reset", "init", "rtr", "rts", "sqd", "sqe", "error"};

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	switch (from) {
	case IBV_QPS_RESET: return to == IBV_QPS_INIT;
	case IBV_QPS_INIT: return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
	case IBV_QPS_RTR: return to == IBV_QPS_RTS;
	case IBV_QPS_RTS: return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
	case IBV_QPS_SQD: return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
	default: return false;
	}
}

static void transition(long both)
{
	enum ibv_qp_state from = (enum ibv_qp_state)(both / 8), to = (enum ibv_qp_state)(both % 8);

	need_infiniband();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(32);
	struct ibv_qp *qp = a_qp(pd, cq), *peer = a_qp(pd, cq);
	bring_to(qp, peer, from);
	EQ(state_of(qp), from);
	int error = step_to(qp, peer, to);
	if (allowed(from, to)) {
		EQ(error, 0);
		EQ(state_of(qp), to);
	} else {
		EQ(error, EINVAL);
		/* Nothing was changed. */
		EQ(state_of(qp), from);
	}
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_qp(peer), 0);
}

CASES
{
	static const enum ibv_qp_state from[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						 IBV_QPS_RTS,	IBV_QPS_SQD,  IBV_QPS_ERR};

	for (size_t i = 0; i < sizeof(from) / sizeof(*from); i++)
		for (long to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++)
			ADD(transition, from[i] * 8 + to, "transition.%s-to-%s", state_names[from[i]],
			    state_names[to]);
}

CASE("modify.of-nothing-is-nothing-or-invalid")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_attr attr = {};
	int error = ibv_modify_qp(qp, &attr, 0);

	CHECK(error == 0 || error == EINVAL);
	EQ(state_of(qp), IBV_QPS_RESET);
}

CASE("modify.unknown-mask-is-invalid")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_attr attr = attr_init();

	CHECK(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC) | 1 << 30) != 0);
	EQ(state_of(qp), IBV_QPS_RESET);
}

CASE("modify.unknown-state-is-invalid")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));

	CHECK(to_state(qp, (enum ibv_qp_state)55) != 0);
	EQ(state_of(qp), IBV_QPS_RESET);
}

CASE("modify.wrong-current-state-is-refused")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_attr attr = attr_init();

	attr.cur_qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC) | IBV_QP_CUR_STATE) != 0);
	EQ(state_of(qp), IBV_QPS_RESET);
}

CASE("modify.reset-to-init-by-hand")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_attr attr = attr_init();

	EQ(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)), 0);
	EQ(state_of(qp), IBV_QPS_INIT);
	EQ(qp->state, IBV_QPS_INIT);
}

CASE("modify.init-to-reset")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_attr attr = attr_init();

	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	EQ(to_state(qp, IBV_QPS_RESET), 0);
	EQ(state_of(qp), IBV_QPS_RESET);
}

CASE("modify.reset-to-rts-is-invalid")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));

	CHECK(to_state(qp, IBV_QPS_RTS) != 0);
	EQ(state_of(qp), IBV_QPS_RESET);
}

CASE("modify.reset-forgets-receives")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qp = a_qp(pd, cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, some_memory(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge list = {(uintptr_t)mr->addr, 64, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1}, *bad;
	struct ibv_qp_attr attr = attr_init();

	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	NEED(ibv_post_recv(qp, &wr, &bad) == 0);
	NEED(to_state(qp, IBV_QPS_RESET) == 0);
	CHECK(quiet(cq));
	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	NEED(to_state(qp, IBV_QPS_ERR) == 0);
	CHECK(quiet(cq));
}

CASE("modify.error-by-hand-ends-the-connection")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	EQ(to_state(p.a.qp, IBV_QPS_ERR), 0);
	EQ(state_of(p.a.qp), IBV_QPS_ERR);
	if (env.iwarp) {
		COMPLETES(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
		CHECK(becomes(p.b.qp, IBV_QPS_ERR));
	}
}

CASE("modify.error-to-reset-and-connected-again")
{
	struct pair p;

	need_infiniband();
	if (env.by != BY_GID)
		SKIP("the run is by the connection manager");
	pair_up(&p, (struct wish){});
	NEED(to_state(p.a.qp, IBV_QPS_ERR) == 0 && to_state(p.b.qp, IBV_QPS_ERR) == 0);
	NEED(to_state(p.a.qp, IBV_QPS_RESET) == 0 && to_state(p.b.qp, IBV_QPS_RESET) == 0);
	connect_by_gid(p.a.qp, p.b.qp, -1);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 64) == 0);
	WORKS(p.a.scq, 2);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

CASE("modify.drained-by-hand")
{
	need_infiniband();
	struct pair p;
	struct ibv_async_event event;

	pair_up(&p, (struct wish){});
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	EQ(state_of(p.a.qp), IBV_QPS_SQD);
	NEED(comes(p.a.ctx->async_fd));
	NEED(ibv_get_async_event(p.a.ctx, &event) == 0);
	EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
	ibv_ack_async_event(&event);
	/* What is posted waits until the queue pair goes on. */
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	CHECK(quiet(p.b.rcq));
	EQ(to_state(p.a.qp, IBV_QPS_RTS), 0);
	WORKS(p.a.scq, 2);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}
