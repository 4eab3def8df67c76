/* Attributes of transitions: required, forbidden, wrong and read back. */
#include "env.h"

/* What a queue pair needs to be brought to INIT, RTR or RTS. */
static struct ibv_qp_attr attr_to(enum ibv_qp_state state, struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct end_point own = end_of(qp), other = end_of(peer);

	return state == IBV_QPS_INIT ? attr_init() : state == IBV_QPS_RTR ? attr_rtr(&other) : attr_rts(&own);
}

static int mask_to(enum ibv_qp_state state)
{
	return state == IBV_QPS_INIT  ? mask_init(IBV_QPT_RC)
	       : state == IBV_QPS_RTR ? mask_rtr(IBV_QPT_RC)
				      : mask_rts(IBV_QPT_RC);
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
	enum ibv_qp_state to = required[at].to;
	struct ibv_qp_attr attr = attr_to(to, qp, peer);
	int mask = mask_to(to);

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
	enum ibv_qp_state to = forbidden[at].to;
	struct ibv_qp_attr attr = attr_to(to, qp, peer);
	int mask = mask_to(to);

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
	enum ibv_qp_state to = bad_values[at].to;
	struct ibv_qp_attr attr = attr_to(to, qp, peer);
	int mask = mask_to(to);

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
