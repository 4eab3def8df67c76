/* Bring-up by GID and QPN: which end is first, and nobody at the other. */
#include "env.h"

CASE("bring-up.either-end-first")
{
	need_infiniband();
	struct pair p;

	pair_apart(&p, (struct wish){});
	/* b is ready to the end before a has moved at all. */
	bring_to(p.b.qp, p.a.qp, IBV_QPS_RTS);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	sleep_ms(50);
	bring_to(p.a.qp, p.b.qp, IBV_QPS_RTS);
	NEED(post_recv(&p.a, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	WORKS(p.a.scq, 2);
	NEED(send_of(&p.b, 3, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.a.rcq, 1);
	WORKS(p.b.scq, 3);
	pair_down(&p);
}

CASE("bring-up.sent-before-the-other-is-ready")
{
	need_infiniband();
	struct pair p;

	pair_apart(&p, (struct wish){});
	bring_to(p.a.qp, p.b.qp, IBV_QPS_RTS);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	sleep_ms(50);
	bring_to(p.b.qp, p.a.qp, IBV_QPS_INIT);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	CHECK(step_to(p.b.qp, p.a.qp, IBV_QPS_RTR) == 0);
	/* RTR is enough to receive. */
	WORKS(p.b.rcq, 1);
	WORKS(p.a.scq, 2);
	CHECK(step_to(p.b.qp, p.a.qp, IBV_QPS_RTS) == 0);
	pair_down(&p);
}

CASE("bring-up.to-itself")
{
	need_infiniband();
	struct pair p = {};
	struct wish w = {};

	side_objects(&p.a, &w, false);
	struct ibv_qp_init_attr init = init_of(&p.a, &w);
	NEED(p.a.qp = ibv_create_qp(p.a.pd, &init));
	bring_to(p.a.qp, p.a.qp, IBV_QPS_RTS);
	fill(p.a.buf, 64, 1);
	NEED(post_recv(&p.a, 1, 4096, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 64) == 0);
	WORKS(p.a.rcq, 1);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.a.buf + 4096, 64, 1));
	pair_down(&p);
}

/* A destination that is not there: retries run out in the time the attributes give. */
static void nobody(long port_of_one)
{
	need_infiniband();
	struct pair p = {};
	struct wish w = {};

	side_objects(&p.a, &w, false);
	struct ibv_qp_init_attr init = init_of(&p.a, &w);
	NEED(p.a.qp = ibv_create_qp(p.a.pd, &init));
	struct end_point own = end_of(p.a.qp), none = own;
	none.qpn = port_of_one ? own.qpn ^ 1 : 0xfffffe;
	struct ibv_qp_attr attr = attr_init();
	NEED(ibv_modify_qp(p.a.qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	attr = attr_rtr(&none);
	NEED(ibv_modify_qp(p.a.qp, &attr, mask_rtr(IBV_QPT_RC)) == 0);
	attr = attr_rts(&own);
	attr.timeout = 12;
	attr.retry_cnt = 1;
	NEED(ibv_modify_qp(p.a.qp, &attr, mask_rts(IBV_QPT_RC)) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 64) == 0);
	COMPLETES(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
	EQ(state_of(p.a.qp), IBV_QPS_ERR);
}

CASES
{
	ADD(nobody, 0, "bring-up.to-nobody-runs-out-of-retries");
	ADD(nobody, 1, "bring-up.to-a-wrong-number-runs-out-of-retries");
}

static void refused_on_iwarp(long unused __attribute__((unused)))
{
	need_iwarp();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qp = a_qp(pd, cq), *peer = a_qp(pd, cq);
	struct end_point other = end_of(peer);
	struct ibv_qp_attr attr = attr_init();

	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	attr = attr_rtr(&other);
	CHECK(ibv_modify_qp(qp, &attr, mask_rtr(IBV_QPT_RC)) != 0);
}

CASES
{
	ADD(refused_on_iwarp, 0, "bring-up.is-refused-by-iwarp");
}
