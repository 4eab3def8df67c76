/* Immediate data, atomics, memory windows, ibv_wr_* and ibv_start_poll. */
#include "pair.h"

static struct pair p;

enum { LW = IBV_ACCESS_LOCAL_WRITE, RW = IBV_ACCESS_REMOTE_WRITE, RR = IBV_ACCESS_REMOTE_READ };

static void immediates(void)
{
	struct ibv_sge sge = sge_of(&p.a, 0, 300);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;

	begin_case("send with immediate");
	fill(p.a.buffer, 300, 5);
	EQUAL(post_recv(&p.b, 10, 0, 4096), 0);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htonl(0x01020304);
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	EQUAL(wc.wr_id, 10);
	EQUAL(wc.opcode, IBV_WC_RECV);
	EQUAL(wc.byte_len, 300);
	EQUAL(wc.wc_flags, IBV_WC_WITH_IMM);
	EQUAL(ntohl(wc.imm_data), 0x01020304);
	CHECK(holds(p.b.buffer, 300, 5));
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_SEND);

	begin_case("write with immediate");
	EQUAL(post_recv(&p.b, 11, 0, 0), 0);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = 0xa1b2c3d4;
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buffer + 1000;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	EQUAL(wc.wr_id, 11);
	EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	EQUAL(wc.byte_len, 300);
	EQUAL(wc.wc_flags, IBV_WC_WITH_IMM);
	EQUAL(wc.imm_data, 0xa1b2c3d4);
	CHECK(holds(p.b.buffer + 1000, 300, 5));
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);

	begin_case("a solicited immediate wakes who waits for solicited messages");
	EQUAL(ibv_req_notify_cq(p.b.recv_cq, 1), 0);
	EQUAL(post_recv(&p.b, 12, 0, 0), 0);
	EQUAL(post_recv(&p.b, 13, 0, 0), 0);
	wr.num_sge = 0;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	CHECK(!readable(p.b.channel->fd, 50));
	wr.send_flags |= IBV_SEND_SOLICITED;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	CHECK(readable(p.b.channel->fd, PATIENCE));
	struct ibv_cq *cq;
	void *context;
	EQUAL(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	for (int i = 12; i < 14; i++) {
		EQUAL(reap(p.b.recv_cq, &wc), 1);
		EQUAL(wc.byte_len, 0);
		COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
}

static int atomic(enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap, uint32_t rkey, int length)
{
	struct ibv_sge sge = sge_of(&p.a, 64, length);
	struct ibv_send_wr wr = {.wr_id = 3,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)p.b.buffer + 128;
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return ibv_post_send(p.a.qp, &wr, &bad);
}

static void atomics(void)
{
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buffer, BUFFER, LW | IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t *cell = (uint64_t *)(p.b.buffer + 128), *result = (uint64_t *)(p.a.buffer + 64);

	NEED(mr);
	begin_case("fetch and add");
	*cell = 0xfffffffffffffff0;
	EQUAL(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0x100000011, 0, mr->rkey, 8), 0);
	COMPLETES(p.a.send_cq, 3, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
	EQUAL(*result, 0xfffffffffffffff0);
	EQUAL(*cell, 0x100000001);

	begin_case("compare and swap");
	EQUAL(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 7, 9, mr->rkey, 8), 0);
	COMPLETES(p.a.send_cq, 3, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
	EQUAL(*result, 0x100000001);
	EQUAL(*cell, 0x100000001);
	EQUAL(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 0x100000001, 0x0102030405060708, mr->rkey, 8), 0);
	COMPLETES(p.a.send_cq, 3, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
	EQUAL(*result, 0x100000001);
	EQUAL(*cell, 0x0102030405060708);

	begin_case("an atomic takes eight octets");
	EQUAL(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 0, mr->rkey, 4), EINVAL);
	EQUAL(ibv_dereg_mr(mr), 0);
}

static void windows(void)
{
	struct ibv_mr *plain = p.b.mr;
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buffer, 4096, LW | RW | RR | IBV_ACCESS_MW_BIND);
	struct ibv_mw_bind bind = {.wr_id = 5, .send_flags = IBV_SEND_SIGNALED};

	NEED(mr);
	begin_case("a window of type 1 is bound and written through");
	struct ibv_mw *mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1);
	NEED(mw);
	EQUAL(mw->type, IBV_MW_TYPE_1);
	uint32_t before = mw->rkey;
	bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)p.b.buffer + 256, 256, RW};
	EQUAL(ibv_bind_mw(p.b.qp, mw, &bind), 0);
	CHECK(mw->rkey != before && mw->rkey >> 8 == before >> 8);
	COMPLETES(p.b.send_cq, 5, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	struct ibv_mr as_window = {.rkey = mw->rkey};
	p.b.mr = &as_window;
	fill(p.a.buffer, 256, 8);
	EQUAL(post(&p.a, 6, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 256, &p.b, 256), 0);
	COMPLETES(p.a.send_cq, 6, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	p.b.mr = plain;
	EQUAL(post_recv(&p.b, 7, BUFFER - 8, 8), 0);
	EQUAL(post(&p.a, 7, IBV_WR_SEND, 0, 0, 8, NULL, 0), 0);
	COMPLETES(p.b.recv_cq, 7, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(holds(p.b.buffer + 256, 256, 8));

	begin_case("a region is busy while a window is bound to it");
	EQUAL(ibv_dereg_mr(mr), EBUSY);
	bind.bind_info = (struct ibv_mw_bind_info){};
	EQUAL(ibv_bind_mw(p.b.qp, mw, &bind), 0);
	COMPLETES(p.b.send_cq, 5, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	EQUAL(ibv_dealloc_mw(mw), 0);

	begin_case("a window of type 2 is bound by a work request and invalidated by one");
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
	NEED(mw);
	EQUAL(ibv_bind_mw(p.b.qp, mw, &bind), EINVAL);
	for (int round = 1; round < 3; round++) {
		struct ibv_send_wr wr = {.wr_id = 8, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = mw->rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)p.b.buffer, 64, RR};
		EQUAL(ibv_post_send(p.b.qp, &wr, &bad), 0);
		COMPLETES(p.b.send_cq, 8, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		as_window.rkey = mw->rkey;
		p.b.mr = &as_window;
		fill(p.b.buffer, 64, round);
		EQUAL(post(&p.a, 9, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 64, &p.b, 0), 0);
		COMPLETES(p.a.send_cq, 9, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		p.b.mr = plain;
		CHECK(holds(p.a.buffer, 64, round));
		wr.opcode = IBV_WR_LOCAL_INV;
		wr.invalidate_rkey = mw->rkey;
		EQUAL(ibv_post_send(p.b.qp, &wr, &bad), 0);
		COMPLETES(p.b.send_cq, 8, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
	}
	EQUAL(ibv_dereg_mr(mr), 0);
	EQUAL(ibv_dealloc_mw(mw), 0);

	begin_case("windows that cannot be had");
	IS_NULL(ibv_alloc_mw(p.b.pd, 3), EINVAL);
}

/* A queue pair made with ibv_create_qp_ex, connected to the passive side of a pair of its own. */
static struct ibv_qp_ex *extended_pair(struct pair *q, struct ibv_cq_ex **cq)
{
	struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16};
	struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};

	memset(q, 0, sizeof(*q));
	NEED(q->channel = rdma_create_event_channel());
	q->listener = listen_on(q->channel, AF_INET, 8);
	q->a.id = towards(q->channel, q->listener);
	struct ibv_context *context = q->a.id->verbs;
	NEED(q->a.pd = ibv_alloc_pd(context));
	NEED(q->a.channel = ibv_create_comp_channel(context));
	attr.channel = q->a.channel;
	NEED(*cq = ibv_create_cq_ex(context, &attr));
	NEED(q->a.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	q->a.send_cq = ibv_cq_ex_to_cq(*cq);
	NEED(q->a.buffer = calloc(1, BUFFER));
	NEED(q->a.mr = ibv_reg_mr(q->a.pd, q->a.buffer, BUFFER, LW | RW | RR));
	struct ibv_qp_init_attr_ex init = {
		.send_cq = q->a.send_cq,
		.recv_cq = q->a.recv_cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 4, .max_recv_sge = 1,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = q->a.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	};
	NEED(rdma_create_qp_ex(q->a.id, &init) == 0);
	q->a.qp = q->a.id->qp;
	NEED(rdma_connect(q->a.id, &param) == 0);
	q->b.id = expect_ack(q->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	side_queues(&q->b, &(struct wishes){}, 1);
	NEED(rdma_accept(q->b.id, &param) == 0);
	expect_ack(q->channel, RDMA_CM_EVENT_ESTABLISHED);
	expect_ack(q->channel, RDMA_CM_EVENT_ESTABLISHED);
	return ibv_qp_to_qp_ex(q->a.qp);
}

/* The first completion within two seconds, in a polling that the caller ends. */
static int start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	double end = now() + PATIENCE / 1e3;
	int got;

	do
		got = ibv_start_poll(cq, &attr);
	while (got == ENOENT && now() < end);
	return got;
}

static void built_requests(void)
{
	struct pair q;
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *qp = extended_pair(&q, &cq);
	struct ibv_wc wc;
	struct ibv_poll_cq_attr attr = {};
	uint64_t remote = (uintptr_t)q.b.buffer;

	begin_case("requests are built and posted together");
	NEED(qp);
	fill(q.a.buffer, 100, 4);
	for (int i = 0; i < 3; i++)
		EQUAL(post_recv(&q.b, 20 + i, 4096 * (i + 1), 4096), 0);
	struct ibv_sge sges[2] = {sge_of(&q.a, 0, 30), sge_of(&q.a, 30, 70)};
	struct ibv_data_buf bufs[2] = {{q.a.buffer, 10}, {q.a.buffer + 10, 20}};
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, q.b.mr->rkey, remote);
	ibv_wr_set_sge_list(qp, 2, sges);
	qp->wr_id = 2;
	ibv_wr_send_imm(qp, htonl(99));
	ibv_wr_set_inline_data_list(qp, 2, bufs);
	qp->wr_id = 3;
	qp->wr_flags = 0;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, q.a.buffer, 5);
	qp->wr_id = 4;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write_imm(qp, q.b.mr->rkey, remote + 200, htonl(77));
	ibv_wr_set_sge(qp, q.a.mr->lkey, (uintptr_t)q.a.buffer, 100);
	EQUAL(ibv_wr_complete(qp), 0);
	for (int i = 0; i < 3; i++) {
		static const unsigned octets[] = {30, 5, 100}, flags[] = {IBV_WC_WITH_IMM, 0, IBV_WC_WITH_IMM};
		EQUAL(reap(q.b.recv_cq, &wc), 1);
		EQUAL(wc.wr_id, 20 + i);
		EQUAL(wc.byte_len, octets[i]);
		EQUAL(wc.wc_flags, flags[i]);
	}
	CHECK(holds(q.b.buffer, 100, 4) && holds(q.b.buffer + 4096, 30, 4) && holds(q.b.buffer + 200, 100, 4));

	begin_case("completions are read one after the other");
	EQUAL(start(cq), 0);
	EQUAL(cq->wr_id, 1);
	EQUAL(cq->status, IBV_WC_SUCCESS);
	EQUAL(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
	EQUAL(ibv_wc_read_qp_num(cq), q.a.qp->qp_num);
	EQUAL(ibv_wc_read_wc_flags(cq), 0);
	EQUAL(ibv_wc_read_vendor_err(cq), 0);
	EQUAL(ibv_next_poll(cq), 0);
	EQUAL(cq->wr_id, 2);
	EQUAL(ibv_wc_read_opcode(cq), IBV_WC_SEND);
	EQUAL(ibv_next_poll(cq), 0);
	EQUAL(cq->wr_id, 4);
	EQUAL(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	EQUAL(ibv_start_poll(cq, &attr), ENOENT);
	attr.comp_mask = 1;
	EQUAL(ibv_start_poll(cq, &attr), EINVAL);

	begin_case("a Read that was built, and its length");
	struct ibv_qp_init_attr ignored;
	struct ibv_qp_attr got;
	EQUAL(ibv_query_qp(q.a.qp, &got, IBV_QP_STATE, &ignored), 0);
	EQUAL(got.qp_state, IBV_QPS_RTS);
	fill(q.b.buffer, 8, 1);
	ibv_wr_start(qp);
	qp->wr_id = 5;
	ibv_wr_rdma_read(qp, q.b.mr->rkey, remote);
	ibv_wr_set_sge(qp, q.a.mr->lkey, (uintptr_t)q.a.buffer, 8);
	EQUAL(ibv_wr_complete(qp), 0);
	EQUAL(start(cq), 0);
	EQUAL(ibv_wc_read_opcode(cq), IBV_WC_RDMA_READ);
	EQUAL(ibv_wc_read_byte_len(cq), 8);
	ibv_end_poll(cq);

	begin_case("nothing is posted when one request is wrong, or all are given up");
	ibv_wr_start(qp);
	qp->wr_id = 6;
	ibv_wr_rdma_write(qp, q.b.mr->rkey, remote);
	ibv_wr_set_sge(qp, q.a.mr->lkey, (uintptr_t)q.a.buffer, 8);
	ibv_wr_rdma_write(qp, q.b.mr->rkey, remote);
	ibv_wr_set_inline_data(qp, q.a.buffer, 65);
	EQUAL(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	for (int i = 0; i < 9; i++)
		ibv_wr_rdma_write(qp, q.b.mr->rkey, remote);
	EQUAL(ibv_wr_complete(qp), ENOMEM);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	attr.comp_mask = 0;
	for (double end = now() + 0.02; now() < end;)
		EQUAL(ibv_start_poll(cq, &attr), ENOENT);
	pair_down(&q);
}

int main(void)
{
	pair_up(&p, (struct wishes){});
	immediates();
	atomics();
	windows();
	pair_down(&p);
	built_requests();
	end_program();
}
