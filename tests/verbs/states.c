/* Queue pairs: what they are made with, and the states they go through. */
#include "env.h"

static struct ibv_qp_init_attr plain(struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

CASE("qp.fields")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *send = a_cq(8), *recv = a_cq(8);
	struct ibv_qp_init_attr init = plain(send);
	init.recv_cq = recv;
	init.qp_context = &env;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(qp);
	CHECK(qp->context == env.ctx && qp->pd == pd && qp->qp_context == &env);
	CHECK(qp->send_cq == send && qp->recv_cq == recv && qp->srq == NULL);
	EQ(qp->qp_type, IBV_QPT_RC);
	EQ(qp->state, IBV_QPS_RESET);
	CHECK(qp->qp_num < 1 << 24);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("qp.sizes-are-given-back-and-are-enough")
{
	struct ibv_qp_init_attr init = plain(a_cq(8));
	init.cap = (struct ibv_qp_cap){.max_send_wr = 5, .max_recv_wr = 7, .max_send_sge = 2, .max_recv_sge = 1};
	struct ibv_qp *qp = ibv_create_qp(a_pd(), &init);

	NEED(qp);
	CHECK(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 7);
	CHECK(init.cap.max_send_sge >= 2 && init.cap.max_recv_sge >= 1);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("qp.numbers-differ")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qps[50];

	for (int i = 0; i < 50; i++) {
		qps[i] = a_qp(pd, cq);
		for (int j = 0; j < i; j++)
			CHECK(qps[i]->qp_num != qps[j]->qp_num);
	}
	for (int i = 0; i < 50; i++)
		EQ(ibv_destroy_qp(qps[i]), 0);
}

enum wrong { SEND_WR, RECV_WR, SEND_SGE, RECV_SGE, INLINE_DATA, NO_SEND_CQ, NO_RECV_CQ, NO_TYPE, WRONGS };
static const char *const wrongs[] = {"too-many-sends",		"too-many-receives", "too-many-send-elements",
				     "too-many-receive-elements", "too-much-inline-data", "no-send-queue",
				     "no-receive-queue",	"an-unknown-type"};

static void wrong_qp(long which)
{
	struct ibv_qp_init_attr init = plain(a_cq(8));

	switch ((enum wrong)which) {
	case SEND_WR: init.cap.max_send_wr = (uint32_t)env.dev.max_qp_wr + 1; break;
	case RECV_WR: init.cap.max_recv_wr = (uint32_t)env.dev.max_qp_wr + 1; break;
	case SEND_SGE: init.cap.max_send_sge = (uint32_t)env.dev.max_sge + 1; break;
	case RECV_SGE: init.cap.max_recv_sge = (uint32_t)env.dev.max_sge + 1; break;
	case INLINE_DATA: init.cap.max_inline_data = 1 << 20; break;
	case NO_SEND_CQ: init.send_cq = NULL; break;
	case NO_RECV_CQ: init.recv_cq = NULL; break;
	default: init.qp_type = (enum ibv_qp_type)77;
	}
	/* rdma-core's providers trust the pointers; only what stands in for the kernel can look. */
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp(a_pd(), &init);
	CHECK(qp == NULL);
	CHECKF(errno == EINVAL || errno == ENOMEM || (which == NO_TYPE && says_unsupported(errno)), "errno %d (%s)",
	       errno, strerror(errno));
}

CASES
{
	for (long i = 0; i < WRONGS; i++)
		ADD(wrong_qp, i, "qp.refused-with-%s", wrongs[i]);
}

CASE("qp.destroyed-with-requests-in-it")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 10; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	pair_down(&p);
}

/* --- reading back */

CASE("query.of-a-new-queue-pair")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr init = plain(cq), got;
	init.qp_context = &env;
	init.sq_sig_all = 1;
	struct ibv_qp *qp = ibv_create_qp(a_pd(), &init);
	struct ibv_qp_attr attr;

	NEED(qp);
	EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &got), 0);
	EQ(attr.qp_state, IBV_QPS_RESET);
	EQ(attr.cap.max_send_wr, init.cap.max_send_wr);
	EQ(attr.cap.max_recv_wr, init.cap.max_recv_wr);
	EQ(attr.cap.max_send_sge, init.cap.max_send_sge);
	EQ(attr.cap.max_inline_data, init.cap.max_inline_data);
	CHECK(got.qp_context == &env && got.send_cq == cq && got.recv_cq == cq && got.srq == NULL);
	EQ(got.qp_type, IBV_QPT_RC);
	EQ(got.sq_sig_all, 1);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("query.of-a-connected-one")
{
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_up(&p, (struct wish){});
	EQ(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.cur_qp_state, IBV_QPS_RTS);
	EQ(p.a.qp->state, IBV_QPS_RTS);
	pair_down(&p);
}

CASE("query.writes-the-state-into-the-object")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));

	NEED(to_state(qp, IBV_QPS_ERR) == 0);
	EQ(state_of(qp), IBV_QPS_ERR);
	EQ(qp->state, IBV_QPS_ERR);
}

/* --- transitions of the InfiniBand table (man ibv_modify_qp; the InfiniBand specification, 11.2.5.2 and 10.3.1) */

static const char *const state_names[] = {"reset", "init", "rtr", "rts", "sqd", "sqe", "error"};

/* Brings a queue pair, connected to `peer`, into a state by the table's steps. */
static void bring_to(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
{
	struct end_point own = end_of(qp), other = end_of(peer);
	struct ibv_qp_attr attr;

	if (state == IBV_QPS_RESET)
		return;
	if (state == IBV_QPS_ERR) {
		NEED(to_state(qp, IBV_QPS_ERR) == 0);
		return;
	}
	attr = attr_init();
	NEED(ibv_modify_qp(qp, &attr, mask_init(qp->qp_type)) == 0);
	if (state == IBV_QPS_INIT)
		return;
	attr = attr_rtr(&other);
	NEED(ibv_modify_qp(qp, &attr, mask_rtr(qp->qp_type)) == 0);
	if (state == IBV_QPS_RTR)
		return;
	attr = attr_rts(&own);
	NEED(ibv_modify_qp(qp, &attr, mask_rts(qp->qp_type)) == 0);
	if (state == IBV_QPS_SQD)
		NEED(to_state(qp, IBV_QPS_SQD) == 0);
}

static int step_to(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
{
	struct end_point own = end_of(qp), other = end_of(peer);
	struct ibv_qp_attr attr;

	switch (state) {
	case IBV_QPS_INIT:
		attr = attr_init();
		return ibv_modify_qp(qp, &attr, mask_init(qp->qp_type));
	case IBV_QPS_RTR:
		attr = attr_rtr(&other);
		return ibv_modify_qp(qp, &attr, mask_rtr(qp->qp_type));
	case IBV_QPS_RTS:
		attr = attr_rts(&own);
		/* From SQD and RTS only the state is required, and the rest is not allowed. */
		if (state_of(qp) == IBV_QPS_SQD || state_of(qp) == IBV_QPS_RTS)
			return to_state(qp, IBV_QPS_RTS);
		return ibv_modify_qp(qp, &attr, mask_rts(qp->qp_type));
	default: return to_state(qp, state);
	}
}

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

/* --- masks: each required attribute left out, and one that is not allowed */

static const struct {
	const char *name;
	int bit;
	enum ibv_qp_state to;
} required[] = {
	{"init-without-pkey-index", IBV_QP_PKEY_INDEX, IBV_QPS_INIT},
	{"init-without-port", IBV_QP_PORT, IBV_QPS_INIT},
	{"init-without-access-flags", IBV_QP_ACCESS_FLAGS, IBV_QPS_INIT},
	{"rtr-without-address", IBV_QP_AV, IBV_QPS_RTR},
	{"rtr-without-path-mtu", IBV_QP_PATH_MTU, IBV_QPS_RTR},
	{"rtr-without-destination", IBV_QP_DEST_QPN, IBV_QPS_RTR},
	{"rtr-without-receive-psn", IBV_QP_RQ_PSN, IBV_QPS_RTR},
	{"rtr-without-responder-resources", IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QPS_RTR},
	{"rtr-without-rnr-timer", IBV_QP_MIN_RNR_TIMER, IBV_QPS_RTR},
	{"rts-without-send-psn", IBV_QP_SQ_PSN, IBV_QPS_RTS},
	{"rts-without-initiator-depth", IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTS},
	{"rts-without-retry-count", IBV_QP_RETRY_CNT, IBV_QPS_RTS},
	{"rts-without-rnr-retry", IBV_QP_RNR_RETRY, IBV_QPS_RTS},
	{"rts-without-timeout", IBV_QP_TIMEOUT, IBV_QPS_RTS},
};

static void without(long at)
{
	need_infiniband();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(32);
	struct ibv_qp *qp = a_qp(pd, cq), *peer = a_qp(pd, cq);
	struct end_point own = end_of(qp), other = end_of(peer);
	enum ibv_qp_state to = required[at].to;
	struct ibv_qp_attr attr = to == IBV_QPS_INIT  ? attr_init()
				  : to == IBV_QPS_RTR ? attr_rtr(&other)
						      : attr_rts(&own);
	int mask = to == IBV_QPS_INIT  ? mask_init(IBV_QPT_RC)
		   : to == IBV_QPS_RTR ? mask_rtr(IBV_QPT_RC)
				       : mask_rts(IBV_QPT_RC);

	bring_to(qp, peer, (enum ibv_qp_state)(to - 1));
	EQ(ibv_modify_qp(qp, &attr, mask & ~required[at].bit), EINVAL);
	EQ(state_of(qp), to - 1);
	EQ(ibv_modify_qp(qp, &attr, mask), 0);
	EQ(state_of(qp), to);
}

CASES
{
	for (size_t i = 0; i < sizeof(required) / sizeof(*required); i++)
		ADD(without, (long)i, "mask.%s-is-invalid", required[i].name);
}

static const struct {
	const char *name;
	int bit;
	enum ibv_qp_state to;
} forbidden[] = {
	{"init-with-an-address", IBV_QP_AV, IBV_QPS_INIT},
	{"init-with-a-queue-key", IBV_QP_QKEY, IBV_QPS_INIT},
	{"init-with-a-timeout", IBV_QP_TIMEOUT, IBV_QPS_INIT},
	{"rtr-with-a-timeout", IBV_QP_TIMEOUT, IBV_QPS_RTR},
	{"rtr-with-a-send-psn", IBV_QP_SQ_PSN, IBV_QPS_RTR},
	{"rts-with-an-address", IBV_QP_AV, IBV_QPS_RTS},
	{"rts-with-a-destination", IBV_QP_DEST_QPN, IBV_QPS_RTS},
	{"rts-with-a-path-mtu", IBV_QP_PATH_MTU, IBV_QPS_RTS},
};

static void with(long at)
{
	need_infiniband();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(32);
	struct ibv_qp *qp = a_qp(pd, cq), *peer = a_qp(pd, cq);
	struct end_point own = end_of(qp), other = end_of(peer);
	enum ibv_qp_state to = forbidden[at].to;
	struct ibv_qp_attr attr = to == IBV_QPS_RTR ? attr_rtr(&other) : attr_rts(&own);
	int mask = to == IBV_QPS_INIT  ? mask_init(IBV_QPT_RC)
		   : to == IBV_QPS_RTR ? mask_rtr(IBV_QPT_RC)
				       : mask_rts(IBV_QPT_RC);

	if (to == IBV_QPS_INIT)
		attr = attr_init();
	bring_to(qp, peer, (enum ibv_qp_state)(to - 1));
	EQ(ibv_modify_qp(qp, &attr, mask | forbidden[at].bit), EINVAL);
	EQ(state_of(qp), to - 1);
}

CASES
{
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++)
		ADD(with, (long)i, "mask.%s-is-invalid", forbidden[i].name);
}

/* --- values */

static const struct {
	const char *name;
	enum ibv_qp_state to;
} bad_values[] = {
	{"port-0", IBV_QPS_INIT},	 {"port-past-the-last", IBV_QPS_INIT},
	{"pkey-index-past-the-table", IBV_QPS_INIT}, {"unknown-access", IBV_QPS_INIT},
	{"path-mtu-of-none", IBV_QPS_RTR}, {"path-mtu-above-the-active", IBV_QPS_RTR},
	{"sgid-index-past-the-table", IBV_QPS_RTR}, {"responder-resources-above-the-limit", IBV_QPS_RTR},
	{"initiator-depth-above-the-limit", IBV_QPS_RTS},
};

static void bad_value(long at)
{
	need_infiniband();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(32);
	struct ibv_qp *qp = a_qp(pd, cq), *peer = a_qp(pd, cq);
	struct end_point own = end_of(qp), other = end_of(peer);
	enum ibv_qp_state to = bad_values[at].to;
	struct ibv_qp_attr attr = to == IBV_QPS_RTR ? attr_rtr(&other) : attr_rts(&own);
	int mask = to == IBV_QPS_INIT  ? mask_init(IBV_QPT_RC)
		   : to == IBV_QPS_RTR ? mask_rtr(IBV_QPT_RC)
				       : mask_rts(IBV_QPT_RC);

	if (to == IBV_QPS_INIT)
		attr = attr_init();
	switch (at) {
	case 0: attr.port_num = 0; break;
	case 1: attr.port_num = (uint8_t)(env.dev.phys_port_cnt + 1); break;
	case 2: attr.pkey_index = env.port.pkey_tbl_len; break;
	case 3: attr.qp_access_flags = 1 << 18; break;
	case 4: attr.path_mtu = 0; break;
	case 5:
		if (env.port.active_mtu == IBV_MTU_4096)
			attr.path_mtu = (enum ibv_mtu)6;
		else
			attr.path_mtu = env.port.active_mtu + 1;
		break;
	case 6: attr.ah_attr.grh.sgid_index = 255; break;
	case 7:
		if (env.dev.max_qp_rd_atom >= 255)
			SKIP("the device reports max_qp_rd_atom %d", env.dev.max_qp_rd_atom);
		attr.max_dest_rd_atomic = (uint8_t)(env.dev.max_qp_rd_atom + 1);
		break;
	default:
		if (env.dev.max_qp_init_rd_atom >= 255)
			SKIP("the device reports max_qp_init_rd_atom %d", env.dev.max_qp_init_rd_atom);
		attr.max_rd_atomic = (uint8_t)(env.dev.max_qp_init_rd_atom + 1);
	}
	bring_to(qp, peer, (enum ibv_qp_state)(to - 1));
	CHECK(ibv_modify_qp(qp, &attr, mask) != 0);
	EQ(state_of(qp), to - 1);
}

CASES
{
	for (size_t i = 0; i < sizeof(bad_values) / sizeof(*bad_values); i++)
		ADD(bad_value, (long)i, "modify.%s-is-refused", bad_values[i].name);
}

CASE("modify.what-was-written-is-read-back")
{
	need_infiniband();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(32);
	struct ibv_qp *qp = a_qp(pd, cq), *peer = a_qp(pd, cq);
	struct end_point own = end_of(qp), other = end_of(peer);
	struct ibv_qp_attr init = attr_init(), rtr = attr_rtr(&other), rts = attr_rts(&own), got = {};
	struct ibv_qp_init_attr made;

	NEED(ibv_modify_qp(qp, &init, mask_init(IBV_QPT_RC)) == 0);
	EQ(ibv_query_qp(qp, &got, mask_init(IBV_QPT_RC), &made), 0);
	EQ(got.qp_state, IBV_QPS_INIT);
	EQ(got.port_num, PORT);
	EQ(got.pkey_index, 0);
	EQ(got.qp_access_flags, init.qp_access_flags);
	NEED(ibv_modify_qp(qp, &rtr, mask_rtr(IBV_QPT_RC)) == 0);
	EQ(ibv_query_qp(qp, &got, mask_rtr(IBV_QPT_RC), &made), 0);
	EQ(got.path_mtu, rtr.path_mtu);
	EQ(got.dest_qp_num, rtr.dest_qp_num);
	EQ(got.rq_psn, rtr.rq_psn);
	EQ(got.max_dest_rd_atomic, rtr.max_dest_rd_atomic);
	EQ(got.min_rnr_timer, rtr.min_rnr_timer);
	SAME(&got.ah_attr.grh.dgid, &rtr.ah_attr.grh.dgid, sizeof(got.ah_attr.grh.dgid));
	EQ(got.ah_attr.grh.sgid_index, rtr.ah_attr.grh.sgid_index);
	EQ(got.ah_attr.is_global, 1);
	EQ(got.ah_attr.port_num, PORT);
	NEED(ibv_modify_qp(qp, &rts, mask_rts(IBV_QPT_RC)) == 0);
	EQ(ibv_query_qp(qp, &got, mask_rts(IBV_QPT_RC), &made), 0);
	EQ(got.sq_psn, rts.sq_psn);
	EQ(got.timeout, rts.timeout);
	EQ(got.retry_cnt, rts.retry_cnt);
	EQ(got.rnr_retry, rts.rnr_retry);
	EQ(got.max_rd_atomic, rts.max_rd_atomic);
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
	NEED(readable(p.a.ctx->async_fd, 5000));
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

/* --- bring-up by GID and QPN */

CASE("bring-up.either-end-first")
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
	struct pair p = {};
	struct wish w = {};

	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a;
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		NEED(s->qp = ibv_create_qp(s->pd, &init));
	}
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
