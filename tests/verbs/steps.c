/* Bring-up by GID and QPN, step by step. */
#include "env.h"

struct end_point end_of(struct ibv_qp *qp)
{
	return (struct end_point){.gid = env.gid, .qpn = qp->qp_num, .psn = (qp->qp_num * 7919) & 0xffffff};
}

struct ibv_qp_attr attr_init(void)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.qkey = 0x11111111,
	};
}

struct ibv_qp_attr attr_rtr(const struct end_point *peer)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = (uint8_t)at_most(16, env.dev.max_qp_rd_atom),
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .grh = {.dgid = peer->gid, .sgid_index = (uint8_t)env.gid_index, .hop_limit = 64},
			    .dlid = env.port.lid,
			    .port_num = PORT},
	};
}

struct ibv_qp_attr attr_rts(const struct end_point *own)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = own->psn,
		/* A second for each try: the other end may be late. */
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = (uint8_t)at_most(16, env.dev.max_qp_init_rd_atom),
	};
}

int mask_init(enum ibv_qp_type type)
{
	int common = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	return common | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

int mask_rtr(enum ibv_qp_type type)
{
	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	return IBV_QP_STATE | (type == IBV_QPT_UD ? 0 : connected) |
	       (type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
}

int mask_rts(enum ibv_qp_type type)
{
	return IBV_QP_STATE | IBV_QP_SQ_PSN |
	       (type == IBV_QPT_RC ? IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT
				   : 0);
}

void connect_by_gid(struct ibv_qp *a, struct ibv_qp *b, int access)
{
	struct end_point ends[] = {end_of(a), end_of(b)};
	struct ibv_qp *qps[] = {a, b};

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = attr_init();
		if (access >= 0)
			attr.qp_access_flags = (unsigned)access;
		NEED(ibv_modify_qp(qps[i], &attr, mask_init(a->qp_type)) == 0);
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = attr_rtr(&ends[!i]);
		int error = ibv_modify_qp(qps[i], &attr, mask_rtr(a->qp_type));
		if (says_unsupported(error) && env.iwarp)
			SKIP("the device's transport is iWARP: it has no bring-up by GID and QPN");
		CHECKF(error == 0, "INIT to RTR: %s", strerror(error));
		if (error)
			case_end();
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = attr_rts(&ends[i]);
		NEED(ibv_modify_qp(qps[i], &attr, mask_rts(a->qp_type)) == 0);
	}
}

void bring_to(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
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

int step_to(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
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
