/* Datagrams: address handles, ibv_wr_set_ud_addr, what is refused. Sends and receives of every kind are in the
   conformance program (tests/verbs/datagram.c). */
#include "pair.h"

enum { QKEY = 0x22222222, GRH = 40 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_ah *own;

static struct ibv_ah_attr own_address(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	NEED(ibv_query_gid(context, 1, 0, &attr.grh.dgid) == 0);
	return attr;
}

static struct ibv_qp *up(uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = operations,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);

	if (!qp)
		return NULL;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	return qp;
}

static void by_calls(void)
{
	struct ibv_qp *qp = up(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	struct ibv_qp_ex *qpx;
	struct ibv_wc wc;
	unsigned char *buffer = calloc(1, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {(uintptr_t)buffer, 200, 0};
	struct ibv_recv_wr recv = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;

	begin_case("ibv_wr_set_ud_addr");
	NEED(qp && mr);
	sge.lkey = mr->lkey;
	EQUAL(ibv_post_recv(qp, &recv, &bad), 0);
	qpx = ibv_qp_to_qp_ex(qp);
	NEED(qpx);
	fill(buffer + 1000, 100, 3);
	ibv_wr_start(qpx);
	qpx->wr_id = 8;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qpx, htonl(77));
	ibv_wr_set_ud_addr(qpx, own, qp->qp_num, QKEY);
	ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)buffer + 1000, 100);
	EQUAL(ibv_wr_complete(qpx), 0);
	for (int i = 0; i < 2; i++) {
		EQUAL(reap(cq, &wc), 1);
		EQUAL(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id == 8)
			continue;
		EQUAL(wc.wr_id, 7);
		EQUAL(wc.byte_len, GRH + 100);
		EQUAL(wc.src_qp, qp->qp_num);
		EQUAL(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
		EQUAL(ntohl(wc.imm_data), 77);
		CHECK(holds(buffer + GRH, 100, 3));
	}

	begin_case("a datagram without an address is refused, and what was built with it");
	ibv_wr_start(qpx);
	ibv_wr_send(qpx);
	ibv_wr_set_ud_addr(qpx, own, qp->qp_num, QKEY);
	ibv_wr_send(qpx);
	EQUAL(ibv_wr_complete(qpx), EINVAL);
	EQUAL(ibv_poll_cq(cq, 1, &wc), 0);

	begin_case("a posted send without an address handle is refused");
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send = NULL;
	EQUAL(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);

	begin_case("operations that datagrams lack are refused when the queue pair is made");
	CHECK(up(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE) == NULL);
	EQUAL(errno, EOPNOTSUPP);
	EQUAL(ibv_destroy_qp(qp), 0);
	EQUAL(ibv_dereg_mr(mr), 0);
	free(buffer);
}

static void refusals(void)
{
	struct ibv_qp *qp = up(0);
	struct ibv_ah_attr attr = own_address();
	union ibv_gid group = {.raw = {0xff, 0x0e}};

	begin_case("multicast is refused");
	NEED(qp);
	EQUAL(ibv_attach_mcast(qp, &group, 0), EOPNOTSUPP);
	attr.grh.dgid = group;
	CHECK(ibv_create_ah(pd, &attr) == NULL);
	EQUAL(errno, EINVAL);

	begin_case("null is refused");
	CHECK(ibv_create_ah(NULL, &attr) == NULL);
	EQUAL(errno, EINVAL);
	CHECK(ibv_create_ah(pd, NULL) == NULL);
	EQUAL(errno, EINVAL);
	EQUAL(ibv_destroy_ah(NULL), EINVAL);

	begin_case("a completion without a GRH names no sender");
	struct ibv_wc wc = {};
	struct ibv_grh grh = {};
	EQUAL(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr), EINVAL);
	wc.wc_flags = IBV_WC_GRH;
	EQUAL(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr), EINVAL);

	begin_case("what is set is read back");
	struct ibv_qp_attr got;
	struct ibv_qp_init_attr init;
	EQUAL(ibv_query_qp(qp, &got, IBV_QP_QKEY, &init), 0);
	EQUAL(got.qp_state, IBV_QPS_RTS);
	EQUAL(got.qkey, QKEY);
	EQUAL(init.qp_type, IBV_QPT_UD);
	EQUAL(ibv_destroy_qp(qp), 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_ah_attr attr;

	NEED(list && list[0]);
	NEED(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	NEED(pd = ibv_alloc_pd(context));
	NEED(cq = ibv_create_cq(context, 32, NULL, NULL, 0));
	attr = own_address();
	NEED(own = ibv_create_ah(pd, &attr));
	by_calls();
	refusals();
	EQUAL(ibv_destroy_ah(own), 0);
	EQUAL(ibv_destroy_cq(cq), 0);
	EQUAL(ibv_dealloc_pd(pd), 0);
	EQUAL(ibv_close_device(context), 0);
	end_program();
}
