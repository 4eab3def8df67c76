/* The errno of each wrong call, where the man pages leave it open: what Weft promises. Other devices choose another, or
   trust their caller; on them these cases skip. */
#include "env.h"

/* --- nothing where an object belongs */

CASE("refusal.of-null-in-verbs")
{
	struct ibv_device_attr attr;
	struct ibv_qp_init_attr init = {};
	struct ibv_qp_attr qp_attr = {};
	struct ibv_srq_init_attr srq_init = {};
	struct ibv_srq_attr srq_attr = {};
	struct ibv_ah_attr ah_attr = {};
	struct ibv_async_event async;
	struct ibv_cq *got;
	struct ibv_pd *pd = a_pd();
	void *context;

	need_weft();
	NONE(ibv_open_device(NULL), EINVAL);
	EQ(ibv_close_device(NULL), EINVAL);
	EQ(ibv_query_device(NULL, &attr), EINVAL);
	EQ(ibv_query_device(env.ctx, NULL), EINVAL);
	NONE(ibv_alloc_pd(NULL), EINVAL);
	EQ(ibv_dealloc_pd(NULL), EINVAL);
	NONE(ibv_reg_mr(NULL, &attr, 8, 0), EINVAL);
	EQ(ibv_dereg_mr(NULL), EINVAL);
	NONE(ibv_create_comp_channel(NULL), EINVAL);
	EQ(ibv_destroy_comp_channel(NULL), EINVAL);
	NONE(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
	EQ(ibv_destroy_cq(NULL), EINVAL);
	EQ(ibv_resize_cq(NULL, 1), EINVAL);
	FAILS(ibv_get_cq_event(NULL, &got, &context), EINVAL);
	ibv_ack_cq_events(NULL, 1);
	NONE(ibv_create_srq(NULL, &srq_init), EINVAL);
	NONE(ibv_create_srq(pd, NULL), EINVAL);
	EQ(ibv_modify_srq(NULL, &srq_attr, 0), EINVAL);
	EQ(ibv_query_srq(NULL, &srq_attr), EINVAL);
	EQ(ibv_destroy_srq(NULL), EINVAL);
	NONE(ibv_create_qp(NULL, &init), EINVAL);
	NONE(ibv_create_qp(pd, NULL), EINVAL);
	EQ(ibv_modify_qp(NULL, &qp_attr, IBV_QP_STATE), EINVAL);
	EQ(ibv_query_qp(NULL, &qp_attr, 0, &init), EINVAL);
	EQ(ibv_destroy_qp(NULL), EINVAL);
	NONE(ibv_create_ah(NULL, &ah_attr), EINVAL);
	NONE(ibv_create_ah(pd, NULL), EINVAL);
	EQ(ibv_destroy_ah(NULL), EINVAL);
	FAILS(ibv_get_async_event(NULL, &async), EINVAL);
	FAILS(ibv_get_async_event(env.ctx, NULL), EINVAL);
	ibv_ack_async_event(NULL);
}

CASE("refusal.of-null-in-the-connection-manager")
{
	need_cm();
	need_weft();
	struct ibv_qp_init_attr init = {};
	struct ibv_pd *pd = a_pd();
	struct rdma_cm_event *event;
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;
	uint8_t tos = 8;

	FAILS(rdma_create_id(NULL, NULL, NULL, RDMA_PS_TCP), EINVAL);
	FAILS(rdma_destroy_id(NULL), EINVAL);
	FAILS(rdma_bind_addr(NULL, address(AF_INET, 0)), EINVAL);
	FAILS(rdma_resolve_addr(NULL, NULL, address(AF_INET, 0), 1), EINVAL);
	FAILS(rdma_resolve_route(NULL, 1), EINVAL);
	FAILS(rdma_listen(NULL, 1), EINVAL);
	FAILS(rdma_connect(NULL, NULL), EINVAL);
	FAILS(rdma_accept(NULL, NULL), EINVAL);
	FAILS(rdma_reject(NULL, NULL, 0), EINVAL);
	FAILS(rdma_disconnect(NULL), EINVAL);
	FAILS(rdma_get_cm_event(NULL, &event), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	FAILS(rdma_create_qp(NULL, pd, &init), EINVAL);
	FAILS(rdma_get_request(NULL, &id), EINVAL);
	FAILS(rdma_migrate_id(NULL, NULL), EINVAL);
	FAILS(rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
	FAILS(rdma_set_option(NULL, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), EINVAL);
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
	rdma_destroy_qp(NULL);
	rdma_destroy_srq(NULL);
	rdma_destroy_ep(NULL);
	rdma_freeaddrinfo(NULL);
	rdma_free_devices(NULL);
	rdma_destroy_event_channel(NULL);
	EQ(rdma_get_src_port(NULL), 0);
	EQ(rdma_get_dst_port(NULL), 0);
}

/* --- sizes, kinds and what the device does not have */

CASE("refusal.of-sizes")
{
	need_weft();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(16);
	struct ibv_qp_init_attr plain = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2}};

	NONE(ibv_create_cq(env.ctx, -1, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(env.ctx, env.dev.max_cqe + 1, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(env.ctx, 1, NULL, NULL, -1), EINVAL);
	EQ(ibv_resize_cq(cq, env.dev.max_cqe + 1), EINVAL);

	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 0, .max_sge = 1}};
	NONE(ibv_create_srq(pd, &srq), EINVAL);
	srq.attr.max_wr = (uint32_t)env.dev.max_srq_wr + 1;
	NONE(ibv_create_srq(pd, &srq), EINVAL);
	srq.attr = (struct ibv_srq_attr){.max_wr = 1, .max_sge = (uint32_t)env.dev.max_srq_sge + 1};
	NONE(ibv_create_srq(pd, &srq), EINVAL);

	struct ibv_qp_init_attr init = plain;
	init.cap.max_send_wr = (uint32_t)env.dev.max_qp_wr + 1;
	NONE(ibv_create_qp(pd, &init), EINVAL);
	init = plain;
	init.cap.max_recv_wr = (uint32_t)env.dev.max_qp_wr + 1;
	NONE(ibv_create_qp(pd, &init), EINVAL);
	init = plain;
	init.cap.max_send_sge = (uint32_t)env.dev.max_sge + 1;
	NONE(ibv_create_qp(pd, &init), EINVAL);
	init = plain;
	init.cap.max_inline_data = 1 << 20;
	NONE(ibv_create_qp(pd, &init), EINVAL);
	init = plain;
	init.send_cq = NULL;
	NONE(ibv_create_qp(pd, &init), EINVAL);
	init = plain;
	init.recv_cq = NULL;
	NONE(ibv_create_qp(pd, &init), EINVAL);
}

CASE("refusal.of-kinds-of-queue-pairs")
{
	need_weft();
	static const enum ibv_qp_type types[] = {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER};
	struct ibv_cq *cq = a_cq(16);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = a_pd(),
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		struct ibv_qp_init_attr plain = {.send_cq = cq, .recv_cq = cq, .cap = init.cap, .qp_type = types[i]};
		NONE(ibv_create_qp(init.pd, &plain), EOPNOTSUPP);
	}
	init.qp_type = IBV_QPT_RC;
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	NONE(ibv_create_qp_ex(env.ctx, &init), EOPNOTSUPP);
	init.comp_mask = 0;
	NONE(ibv_create_qp_ex(env.ctx, &init), EINVAL);
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	NONE(ibv_create_qp_ex(env.ctx, &init), EOPNOTSUPP);
	init.create_flags = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(env.ctx, &init);
	NEED(qp);
	CHECK(ibv_qp_to_qp_ex(qp) == NULL);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("refusal.of-kinds-of-shared-queues")
{
	need_weft();
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = a_pd(),
	};
	uint32_t number;

	NONE(ibv_create_srq_ex(env.ctx, &init), EOPNOTSUPP);
	init.srq_type = IBV_SRQT_TM;
	NONE(ibv_create_srq_ex(env.ctx, &init), EOPNOTSUPP);
	init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	NONE(ibv_create_srq_ex(env.ctx, &init), EINVAL);
	init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	init.srq_type = IBV_SRQT_BASIC;
	struct ibv_srq *srq = ibv_create_srq_ex(env.ctx, &init);
	NEED(srq);
	EQ(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
	EQ(ibv_destroy_srq(srq), 0);
}

CASE("refusal.of-what-the-device-does-not-have")
{
	need_weft();
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(16);
	struct ibv_qp *qp = a_qp(pd, cq);
	struct ibv_cq_init_attr_ex stamped = {.cqe = 1, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_init_attr_ex overrun = {.cqe = 1, .comp_mask = 1, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct ibv_cq_init_attr_ex empty = {.cqe = 0}, one = {.cqe = 1};
	union ibv_gid gid = {};
	struct ibv_ece ece = {};

	NONE(ibv_create_cq_ex(env.ctx, &stamped), EOPNOTSUPP);
	NONE(ibv_create_cq_ex(env.ctx, &overrun), EOPNOTSUPP);
	NONE(ibv_create_cq_ex(env.ctx, &empty), EINVAL);
	struct ibv_cq_ex *polled = ibv_create_cq_ex(env.ctx, &one);
	NEED(polled);
	EQ(ibv_start_poll(polled, &(struct ibv_poll_cq_attr){.comp_mask = 1}), EINVAL);
	NONE(ibv_alloc_td(env.ctx, NULL), EOPNOTSUPP);
	NONE(ibv_alloc_parent_domain(env.ctx, NULL), EOPNOTSUPP);
	NONE(ibv_open_xrcd(env.ctx, NULL), EOPNOTSUPP);
	NONE(ibv_alloc_dm(env.ctx, NULL), EOPNOTSUPP);
	NONE(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0), EOPNOTSUPP);
	NONE(ibv_import_device(env.ctx->cmd_fd), EOPNOTSUPP);
	NONE(ibv_import_device(-1), EOPNOTSUPP);
	NONE(ibv_import_pd(env.ctx, 0), EOPNOTSUPP);
	EQ(ibv_modify_cq(cq, NULL), EOPNOTSUPP);
	EQ(ibv_attach_mcast(qp, &gid, 0), EOPNOTSUPP);
	EQ(ibv_query_ece(qp, &ece), EOPNOTSUPP);
	NONE(ibv_alloc_mw(pd, (enum ibv_mw_type)3), EINVAL);
}

/* --- regions */

CASE("refusal.of-regions")
{
	need_weft();
	struct ibv_pd *pd = a_pd();
	char *memory = some_memory(4096);

	NONE(ibv_reg_mr(pd, memory, 100, LW | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	NONE(ibv_reg_mr(pd, memory, 0, LW), EINVAL);
	NONE(ibv_reg_mr(pd, (void *)-4096, 8192, LW), EINVAL);
	NONE(ibv_reg_mr(pd, NULL, 4096, LW), EFAULT);
}

CASE("refusal.of-a-second-registration-leaves-the-first")
{
	need_weft();
	char *memory = some_memory(4096);
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), memory, 4096, LW);

	NEED(mr);
	FAILS(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), EINVAL);
	FAILS(ibv_rereg_mr(mr, 1 << 7, NULL, NULL, 0, 0), EINVAL);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW), EINVAL);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0), EFAULT);
	CHECK(mr->addr == memory && mr->length == 4096);
	EQ(ibv_dereg_mr(mr), 0);
}

/* --- queue pairs and requests */

CASE("refusal.of-attributes-and-posts-of-a-queue-pair")
{
	need_weft();
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(16));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 2}, got;
	struct ibv_qp_init_attr made;
	struct ibv_sge list = {};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &list}, *bad_send = NULL;
	struct ibv_recv_wr recv = {.sg_list = &list}, *bad_recv = NULL;
	int to_init = mask_init(IBV_QPT_RC);

	EQ(ibv_modify_qp(qp, &attr, to_init), EINVAL);
	attr.port_num = 1;
	attr.qp_access_flags = 1 << 15;
	EQ(ibv_modify_qp(qp, &attr, to_init), EINVAL);
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.cur_qp_state = IBV_QPS_RTS;
	EQ(ibv_modify_qp(qp, &attr, to_init | IBV_QP_CUR_STATE), EINVAL);
	EQ(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
	EQ(qp->state, IBV_QPS_RESET);
	EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);
	EQ(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);

	NEED(ibv_modify_qp(qp, &attr, to_init) == 0);
	EQ(ibv_query_qp(qp, &got, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &made), 0);
	EQ(got.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	/* Bring-up by GID and QPN without a route, or with attributes missing. */
	attr.qp_state = IBV_QPS_RTR;
	EQ(ibv_modify_qp(qp, &attr, mask_rtr(IBV_QPT_RC)), EINVAL);
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN), EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
	EQ(qp->state, IBV_QPS_INIT);
	/* And from ERR it comes back. */
	NEED(to_state(qp, IBV_QPS_ERR) == 0 && to_state(qp, IBV_QPS_RESET) == 0);
	EQ(qp->state, IBV_QPS_RESET);
}

/* A send of one element that this changes. */
struct request {
	struct ibv_sge list;
	struct ibv_send_wr wr;
};

static struct request a_write(struct pair *p)
{
	struct request r = {.list = sge(&p->a, 0, 8)};

	r.wr = (struct ibv_send_wr){.num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .wr.rdma = {(uintptr_t)p->b.buf, p->b.mr->rkey}};
	return r;
}

static int post_one(struct pair *p, struct request *r, struct ibv_send_wr **bad)
{
	if (!r->wr.sg_list)
		r->wr.sg_list = &r->list;
	return ibv_post_send(p->a.qp, &r->wr, bad);
}

CASE("refusal.of-requests")
{
	need_weft();
	struct pair p;
	struct ibv_sge many[20];
	struct ibv_send_wr *bad = NULL;
	struct ibv_recv_wr recv = {.sg_list = many, .num_sge = 3}, *bad_recv = NULL;

	pair_up(&p, (struct wish){.sges = 2, .inline_data = 64, .depth = 8});
	for (int i = 0; i < 20; i++)
		many[i] = sge(&p.a, 0, 8);
	struct request r = a_write(&p);
	r.wr.opcode = IBV_WR_TSO;
	EQ(post_one(&p, &r, &bad), EOPNOTSUPP);
	CHECK(bad == &r.wr);
	r.wr.opcode = IBV_WR_BIND_MW;
	EQ(post_one(&p, &r, &bad), EINVAL);
	r.wr.opcode = (enum ibv_wr_opcode)77;
	EQ(post_one(&p, &r, &bad), EINVAL);

	r = a_write(&p);
	r.wr.sg_list = many;
	r.wr.num_sge = 20;
	EQ(post_one(&p, &r, &bad), EINVAL);
	r.wr.num_sge = -1;
	EQ(post_one(&p, &r, &bad), EINVAL);
	r.wr.num_sge = 1;
	r.wr.sg_list = NULL;
	EQ(ibv_post_send(p.a.qp, &r.wr, &bad), EINVAL);
	EQ(ibv_post_recv(p.a.qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);

	r = a_write(&p);
	r.wr.send_flags |= IBV_SEND_INLINE;
	r.list.length = 65;
	EQ(post_one(&p, &r, &bad), EINVAL);
	r.list.length = 1 << 20;
	EQ(post_one(&p, &r, &bad), EINVAL);
	r.list.length = 8;
	r.wr.opcode = IBV_WR_RDMA_READ;
	EQ(post_one(&p, &r, &bad), EINVAL);

	/* In a list the first wrong one is named; the one before it is on its way. */
	struct request first = a_write(&p), second = a_write(&p);
	first.wr.sg_list = &first.list;
	first.wr.next = &second.wr;
	second.wr.sg_list = many;
	second.wr.num_sge = 3;
	EQ(post_one(&p, &first, &bad), EINVAL);
	CHECK(bad == &second.wr);
	WORKS(p.a.scq, 0);
	CHECK(quiet(p.a.scq));
	EQ(ibv_post_send(p.a.qp, NULL, &bad), 0);
	pair_down(&p);
}

CASE("refusal.of-polls-and-of-ends-of-objects-in-use")
{
	need_weft();
	struct pair p;
	struct ibv_wc wc;

	pair_up(&p, (struct wish){});
	CHECK(ibv_poll_cq(p.a.scq, -1, &wc) < 0);
	CHECK(ibv_poll_cq(p.a.scq, 1, NULL) < 0);
	EQ(ibv_destroy_cq(p.a.scq), EBUSY);
	EQ(ibv_dealloc_pd(p.a.pd), EBUSY);
	EQ(ibv_destroy_comp_channel(p.a.channel), EBUSY);
	pair_down(&p);
}

CASE("refusal.of-atomics-of-other-sizes-than-eight")
{
	need_weft();
	need_atomics();
	struct pair p;
	struct ibv_send_wr *bad;

	pair_up(&p, (struct wish){});
	struct request r = a_write(&p);
	r.list.length = 4;
	r.wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	r.wr.wr.atomic.remote_addr = (uintptr_t)p.b.buf;
	r.wr.wr.atomic.rkey = p.b.mr->rkey;
	EQ(post_one(&p, &r, &bad), EINVAL);
	pair_down(&p);
}

CASE("refusal.of-a-window-of-type-2-that-ibv_bind_mw-binds")
{
	need_weft();
	need_windows(2);
	struct ibv_pd *pd = a_pd();
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {.wr_id = 1};

	NEED(mw);
	EQ(ibv_bind_mw(a_qp(pd, a_cq(8)), mw, &bind), EINVAL);
	EQ(ibv_dealloc_mw(mw), 0);
}

CASE("refusal.of-datagrams-without-an-address")
{
	need_weft();
	need_infiniband();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_pd *pd = a_pd();
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
					.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad = NULL;
	struct ibv_ah_attr address = {.is_global = 1, .port_num = PORT, .grh.dgid = {.raw = {0xff, 0x0e}}};
	struct ibv_wc wc = {};
	struct ibv_grh grh = {};

	NEED(qp);
	bring_to(qp, qp, IBV_QPS_RTS);
	EQ(ibv_post_send(qp, &send, &bad), EINVAL);
	CHECK(bad == &send);
	EQ(ibv_attach_mcast(qp, &address.grh.dgid, 0), EOPNOTSUPP);
	NONE(ibv_create_ah(pd, &address), EINVAL);
	/* A completion without a routing header names no sender, nor does an empty header. */
	EQ(ibv_init_ah_from_wc(env.ctx, PORT, &wc, &grh, &address), EINVAL);
	wc.wc_flags = IBV_WC_GRH;
	EQ(ibv_init_ah_from_wc(env.ctx, PORT, &wc, &grh, &address), EINVAL);
	EQ(ibv_destroy_qp(qp), 0);
}

/* --- shared receive queues */

CASE("refusal.of-changes-of-a-shared-queue")
{
	need_weft();
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr attr = {.max_wr = 4, .srq_limit = 5};
	struct ibv_recv_wr recv = {}, *bad = NULL;
	int posted = 0, error;

	NEED(srq);
	EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	EQ(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	attr.max_wr = 16;
	EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	EQ(ibv_query_srq(srq, &attr), 0);
	EQ(attr.max_wr, 16);
	EQ(attr.max_sge, 1);
	/* Its new size is exact: so many fit, and no more. */
	while ((error = ibv_post_srq_recv(srq, &recv, &bad)) == 0 && posted < 100000)
		posted++;
	EQ(error, ENOMEM);
	EQ(posted, 16);
	CHECK(bad == &recv);
	attr.max_wr = 4;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) != 0);

	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr qp_init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
					   .cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qp_init);
	NEED(qp);
	EQ(ibv_post_recv(qp, &recv, &bad), EINVAL);
}

/* --- the connection manager */

CASE("refusal.of-port-spaces")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	NEED(channel);
	if (env.iwarp) {
		FAILS(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), EOPNOTSUPP);
	} else {
		NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
		EQ(rdma_destroy_id(id), 0);
	}
	FAILS(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), EOPNOTSUPP);
	FAILS(rdma_create_id(channel, &id, NULL, RDMA_PS_IB), EOPNOTSUPP);
	FAILS(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)0x7777), EINVAL);
	rdma_destroy_event_channel(channel);
}

CASE("refusal.of-calls-in-the-wrong-order")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel), *request;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1}, .qp_type = IBV_QPT_RC};

	FAILS(rdma_connect(id, &param), EINVAL);
	FAILS(rdma_accept(id, &param), EINVAL);
	FAILS(rdma_reject(id, NULL, 0), EINVAL);
	FAILS(rdma_disconnect(id), EINVAL);
	FAILS(rdma_create_qp(id, NULL, &init), EINVAL);
	FAILS(rdma_get_request(id, &request), EINVAL);
	FAILS(rdma_establish(id), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("refusal.of-addresses")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct sockaddr_storage strange = {.ss_family = AF_UNIX};
	struct sockaddr_in foreign = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.1")};
	struct rdma_addrinfo *info, hints = {.ai_flags = RAI_NUMERICHOST};

	FAILS(rdma_bind_addr(id, NULL), EINVAL);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&strange), EINVAL);
	FAILS(rdma_resolve_addr(id, NULL, NULL, 100), EINVAL);
	FAILS(rdma_resolve_addr(id, (struct sockaddr *)&strange, address(AF_INET, 1), 100), EINVAL);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&foreign), EADDRNOTAVAIL);
	EQ(rdma_getaddrinfo("not a number", "1", &hints, &info), EAI_NONAME);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("refusal.of-too-many-reads")
{
	need_cm();
	need_weft();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 254, .initiator_depth = 1};

	half(&p);
	FAILS(rdma_connect(p.a.id, &param), EINVAL);
	pair_down(&p);
}

CASE("refusal.of-options")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	uint8_t octet = 8;
	int number = 1;

	EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, 1), 0);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, 4), EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &octet, 1), EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, 99, &number, 4), ENOSYS);
	FAILS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &number, 4), ENOSYS);
	FAILS(rdma_set_option(id, 7, 0, &number, 4), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("refusal.of-groups")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_cm_join_mc_attr_ex join = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED};

	FAILS(rdma_join_multicast(id, NULL, NULL), EINVAL);
	FAILS(rdma_join_multicast(id, address(AF_INET, 0), NULL), EOPNOTSUPP);
	FAILS(rdma_leave_multicast(id, address(AF_INET, 0)), EADDRNOTAVAIL);
	FAILS(rdma_join_multicast_ex(id, &join, NULL), ENOTSUP);
	join.comp_mask = 0;
	FAILS(rdma_join_multicast_ex(id, &join, NULL), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("refusal.of-enhanced-connection-establishment")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct ibv_ece ece = {.vendor_id = 5};

	/* It is taken and leads nowhere: the peer has none. */
	EQ(rdma_set_local_ece(id, &ece), 0);
	EQ(rdma_get_remote_ece(id, &ece), 0);
	EQ(ece.vendor_id, 0);
	ece.comp_mask = 1;
	FAILS(rdma_set_local_ece(id, &ece), EINVAL);
	EQ(rdma_notify(id, IBV_EVENT_COMM_EST), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}
