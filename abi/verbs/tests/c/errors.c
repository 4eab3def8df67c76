/* Wrong calls, and the errno each of them gets. */
#include <netdb.h>

#include "pair.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp_init_attr plain_qp(void)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};
}

static void null_objects(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp_init_attr init = {};
	struct ibv_qp_attr qp_attr = {};
	struct ibv_srq_init_attr srq_init = {};
	struct ibv_srq_attr srq_attr;
	struct ibv_async_event async;
	struct ibv_cq *got;
	void *cq_context;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	begin_case("null objects of verbs");
	IS_NULL(ibv_open_device(NULL), EINVAL);
	EQUAL(ibv_close_device(NULL), EINVAL);
	EQUAL(ibv_query_device(NULL, &attr), EINVAL);
	EQUAL(ibv_query_device(context, NULL), EINVAL);
	IS_NULL(ibv_alloc_pd(NULL), EINVAL);
	EQUAL(ibv_dealloc_pd(NULL), EINVAL);
	IS_NULL(ibv_reg_mr(NULL, &attr, 8, 0), EINVAL);
	EQUAL(ibv_dereg_mr(NULL), EINVAL);
	IS_NULL(ibv_create_comp_channel(NULL), EINVAL);
	EQUAL(ibv_destroy_comp_channel(NULL), EINVAL);
	IS_NULL(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
	EQUAL(ibv_destroy_cq(NULL), EINVAL);
	EQUAL(ibv_resize_cq(NULL, 1), EINVAL);
	MINUS_ONE(ibv_get_cq_event(NULL, &got, &cq_context), EINVAL);
	ibv_ack_cq_events(NULL, 1);
	IS_NULL(ibv_create_srq(NULL, &srq_init), EINVAL);
	IS_NULL(ibv_create_srq(pd, NULL), EINVAL);
	EQUAL(ibv_modify_srq(NULL, &srq_attr, 0), EINVAL);
	EQUAL(ibv_query_srq(NULL, &srq_attr), EINVAL);
	EQUAL(ibv_destroy_srq(NULL), EINVAL);
	IS_NULL(ibv_create_qp(NULL, &init), EINVAL);
	IS_NULL(ibv_create_qp(pd, NULL), EINVAL);
	EQUAL(ibv_modify_qp(NULL, &qp_attr, IBV_QP_STATE), EINVAL);
	EQUAL(ibv_query_qp(NULL, &qp_attr, 0, &init), EINVAL);
	EQUAL(ibv_destroy_qp(NULL), EINVAL);
	MINUS_ONE(ibv_get_async_event(NULL, &async), EINVAL);
	MINUS_ONE(ibv_get_async_event(context, NULL), EINVAL);
	ibv_ack_async_event(NULL);

	begin_case("null objects of the connection manager");
	MINUS_ONE(rdma_create_id(NULL, NULL, NULL, RDMA_PS_TCP), EINVAL);
	MINUS_ONE(rdma_destroy_id(NULL), EINVAL);
	MINUS_ONE(rdma_bind_addr(NULL, loopback(AF_INET, 0)), EINVAL);
	MINUS_ONE(rdma_resolve_addr(NULL, NULL, loopback(AF_INET, 0), 1), EINVAL);
	MINUS_ONE(rdma_resolve_route(NULL, 1), EINVAL);
	MINUS_ONE(rdma_listen(NULL, 1), EINVAL);
	MINUS_ONE(rdma_connect(NULL, NULL), EINVAL);
	MINUS_ONE(rdma_accept(NULL, NULL), EINVAL);
	MINUS_ONE(rdma_reject(NULL, NULL, 0), EINVAL);
	MINUS_ONE(rdma_disconnect(NULL), EINVAL);
	MINUS_ONE(rdma_get_cm_event(NULL, &event), EINVAL);
	MINUS_ONE(rdma_ack_cm_event(NULL), EINVAL);
	MINUS_ONE(rdma_create_qp(NULL, pd, &init), EINVAL);
	MINUS_ONE(rdma_get_request(NULL, &id), EINVAL);
	MINUS_ONE(rdma_migrate_id(NULL, NULL), EINVAL);
	MINUS_ONE(rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
	MINUS_ONE(rdma_set_option(NULL, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &attr, 1), EINVAL);
	rdma_destroy_qp(NULL);
	rdma_destroy_srq(NULL);
	rdma_destroy_ep(NULL);
	rdma_freeaddrinfo(NULL);
	rdma_free_devices(NULL);
	rdma_destroy_event_channel(NULL);
	EQUAL(rdma_get_src_port(NULL), 0);
	EQUAL(rdma_get_dst_port(NULL), 0);
}

static void sizes(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 0, .max_sge = 1}};

	NEED(ibv_query_device(context, &attr) == 0);

	begin_case("sizes of completion queues");
	IS_NULL(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	IS_NULL(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	IS_NULL(ibv_create_cq(context, attr.max_cqe + 1, NULL, NULL, 0), EINVAL);
	IS_NULL(ibv_create_cq(context, 1, NULL, NULL, -1), EINVAL);
	IS_NULL(ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors), EINVAL);
	EQUAL(ibv_resize_cq(cq, 0), EINVAL);
	EQUAL(ibv_resize_cq(cq, attr.max_cqe + 1), EINVAL);
	EQUAL(ibv_resize_cq(cq, 64), 0);
	CHECK(cq->cqe >= 64);

	begin_case("sizes of shared receive queues");
	IS_NULL(ibv_create_srq(pd, &srq), EINVAL);
	srq.attr.max_wr = attr.max_srq_wr + 1;
	IS_NULL(ibv_create_srq(pd, &srq), EINVAL);
	srq.attr.max_wr = 1;
	srq.attr.max_sge = attr.max_srq_sge + 1;
	IS_NULL(ibv_create_srq(pd, &srq), EINVAL);

	begin_case("sizes of queue pairs");
	init = plain_qp();
	init.cap.max_send_wr = attr.max_qp_wr + 1;
	IS_NULL(ibv_create_qp(pd, &init), EINVAL);
	init = plain_qp();
	init.cap.max_recv_wr = attr.max_qp_wr + 1;
	IS_NULL(ibv_create_qp(pd, &init), EINVAL);
	init = plain_qp();
	init.cap.max_send_sge = attr.max_sge + 1;
	IS_NULL(ibv_create_qp(pd, &init), EINVAL);
	init = plain_qp();
	init.cap.max_inline_data = 1 << 20;
	IS_NULL(ibv_create_qp(pd, &init), EINVAL);
	init = plain_qp();
	init.send_cq = NULL;
	IS_NULL(ibv_create_qp(pd, &init), EINVAL);
	init = plain_qp();
	init.recv_cq = NULL;
	IS_NULL(ibv_create_qp(pd, &init), EINVAL);
}

static void kinds(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND,
						 IBV_QPT_XRC_RECV, IBV_QPT_DRIVER};
	struct ibv_qp_init_attr init;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	begin_case("queue pairs of other types");
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		init = plain_qp();
		init.qp_type = types[i];
		IS_NULL(ibv_create_qp(pd, &init), EOPNOTSUPP);
	}

	begin_case("extended queue pairs");
	struct ibv_qp_init_attr_ex extended = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
	};
	IS_NULL(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	extended.comp_mask = 0;
	IS_NULL(ibv_create_qp_ex(context, &extended), EINVAL);
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	extended.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	IS_NULL(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
	extended.create_flags = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(context, &extended);
	CHECK(qp);
	CHECK(ibv_qp_to_qp_ex(qp) == NULL);
	EQUAL(ibv_destroy_qp(qp), 0);

	begin_case("what the device does not have");
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 1, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	IS_NULL(ibv_create_cq_ex(context, &cq_attr), EOPNOTSUPP);
	cq_attr = (struct ibv_cq_init_attr_ex){.cqe = 1, .comp_mask = 1, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	IS_NULL(ibv_create_cq_ex(context, &cq_attr), EOPNOTSUPP);
	cq_attr = (struct ibv_cq_init_attr_ex){.cqe = 0};
	IS_NULL(ibv_create_cq_ex(context, &cq_attr), EINVAL);
	IS_NULL(ibv_alloc_td(context, NULL), EOPNOTSUPP);
	IS_NULL(ibv_alloc_parent_domain(context, NULL), EOPNOTSUPP);
	IS_NULL(ibv_open_xrcd(context, NULL), EOPNOTSUPP);
	IS_NULL(ibv_alloc_dm(context, NULL), EOPNOTSUPP);
	IS_NULL(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0), EOPNOTSUPP);
	IS_NULL(ibv_import_device(context->cmd_fd), EOPNOTSUPP);
	IS_NULL(ibv_import_device(-1), EOPNOTSUPP);
	IS_NULL(ibv_import_pd(context, 0), EOPNOTSUPP);
	EQUAL(ibv_modify_cq(cq, NULL), EOPNOTSUPP);
	init = plain_qp();
	qp = ibv_create_qp(pd, &init);
	NEED(qp);
	union ibv_gid gid = {};
	EQUAL(ibv_attach_mcast(qp, &gid, 0), EOPNOTSUPP);
	struct ibv_ece ece = {};
	EQUAL(ibv_query_ece(qp, &ece), EOPNOTSUPP);
	EQUAL(ibv_destroy_qp(qp), 0);

	begin_case("port spaces");
	NEED(channel);
	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
	EQUAL(rdma_destroy_id(id), 0);
	MINUS_ONE(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), EOPNOTSUPP);
	MINUS_ONE(rdma_create_id(channel, &id, NULL, RDMA_PS_IB), EOPNOTSUPP);
	MINUS_ONE(rdma_create_id(channel, &id, NULL, 0x7777), EINVAL);
	rdma_destroy_event_channel(channel);
}

static void states(void)
{
	struct ibv_qp_init_attr init = plain_qp(), asked;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1}, got;
	int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_sge sge = {};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &sge}, *bad_send = NULL;
	struct ibv_recv_wr recv = {.sg_list = &sge}, *bad_recv = NULL;

	NEED(qp);
	begin_case("a queue pair says what it got");
	CHECK(init.cap.max_send_wr >= 4 && init.cap.max_recv_wr >= 4 && init.cap.max_send_sge >= 2);
	EQUAL(qp->state, IBV_QPS_RESET);
	EQUAL(ibv_query_qp(qp, &got, IBV_QP_STATE | IBV_QP_CAP, &asked), 0);
	EQUAL(got.qp_state, IBV_QPS_RESET);
	EQUAL(got.cap.max_send_wr, init.cap.max_send_wr);
	CHECK(asked.send_cq == cq && asked.qp_type == IBV_QPT_RC);

	begin_case("a wrong attribute changes nothing");
	attr.port_num = 2;
	EQUAL(ibv_modify_qp(qp, &attr, to_init), EINVAL);
	attr.port_num = 1;
	attr.qp_access_flags = 1 << 15;
	EQUAL(ibv_modify_qp(qp, &attr, to_init), EINVAL);
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.cur_qp_state = IBV_QPS_RTS;
	EQUAL(ibv_modify_qp(qp, &attr, to_init | IBV_QP_CUR_STATE), EINVAL);
	EQUAL(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
	EQUAL(qp->state, IBV_QPS_RESET);

	begin_case("posting before INIT");
	EQUAL(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);
	EQUAL(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);

	begin_case("RESET to INIT");
	EQUAL(ibv_modify_qp(qp, &attr, to_init), 0);
	EQUAL(qp->state, IBV_QPS_INIT);
	EQUAL(ibv_query_qp(qp, &got, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &asked), 0);
	EQUAL(got.qp_state, IBV_QPS_INIT);
	EQUAL(got.qp_access_flags, IBV_ACCESS_REMOTE_READ);

	begin_case("posting in INIT");
	recv.num_sge = 0;
	EQUAL(ibv_post_recv(qp, &recv, &bad_recv), 0);
	EQUAL(ibv_post_send(qp, &send, &bad_send), EINVAL);

	begin_case("bring-up by GID and QPN with attributes missing, or without a route");
	attr.qp_state = IBV_QPS_RTR;
	EQUAL(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      EINVAL);
	EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN), EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
	EQUAL(qp->state, IBV_QPS_INIT);

	begin_case("a full receive queue");
	unsigned posted = 1;
	int error;
	while ((error = ibv_post_recv(qp, &recv, &bad_recv)) == 0 && posted < 100000)
		posted++;
	EQUAL(error, ENOMEM);
	EQUAL(posted, init.cap.max_recv_wr);

	begin_case("ERR flushes");
	attr.qp_state = IBV_QPS_ERR;
	EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	for (unsigned i = 0; i < posted; i++)
		COMPLETES(cq, 0, IBV_WC_WR_FLUSH_ERR, 0);
	EQUAL(ibv_query_qp(qp, &got, IBV_QP_STATE, &asked), 0);
	EQUAL(got.qp_state, IBV_QPS_ERR);

	begin_case("back to RESET");
	attr.qp_state = IBV_QPS_RESET;
	EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EQUAL(qp->state, IBV_QPS_RESET);
	EQUAL(ibv_destroy_qp(qp), 0);
}

static void work_requests(void)
{
	struct pair p;
	struct ibv_sge sges[20];
	struct ibv_send_wr wrs[3], *bad;
	struct ibv_recv_wr recv = {}, *bad_recv;

	pair_up(&p, (struct wishes){.sges = 2, .inline_data = 64, .depth = 8});
	for (int i = 0; i < 20; i++)
		sges[i] = sge_of(&p.a, 0, 8);
	memset(wrs, 0, sizeof(wrs));
	for (int i = 0; i < 3; i++)
		wrs[i] = (struct ibv_send_wr){.wr_id = i,
					      .next = i < 2 ? &wrs[i + 1] : NULL,
					      .sg_list = sges,
					      .num_sge = 1,
					      .opcode = IBV_WR_RDMA_WRITE,
					      .send_flags = IBV_SEND_SIGNALED};

	begin_case("opcodes");
	wrs[2].next = NULL;
	wrs[2].opcode = IBV_WR_TSO;
	bad = NULL;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EOPNOTSUPP);
	CHECK(bad == &wrs[2]);
	wrs[2].opcode = IBV_WR_BIND_MW;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);
	wrs[2].opcode = 77;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);

	begin_case("a list stops at the first wrong request");
	for (int i = 0; i < 3; i++) {
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].wr.rdma.remote_addr = (uintptr_t)p.b.buffer;
		wrs[i].wr.rdma.rkey = p.b.mr->rkey;
	}
	wrs[1].num_sge = 3;
	bad = NULL;
	EQUAL(ibv_post_send(p.a.qp, wrs, &bad), EINVAL);
	CHECK(bad == &wrs[1]);
	COMPLETES(p.a.send_cq, 0, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	CHECK(quiet(p.a.send_cq, 20));
	wrs[1].num_sge = 1;

	begin_case("scatter/gather lists");
	wrs[2].num_sge = 20;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);
	wrs[2].num_sge = -1;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);
	wrs[2].num_sge = 1;
	wrs[2].sg_list = NULL;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);
	wrs[2].sg_list = sges;
	recv.sg_list = sges;
	recv.num_sge = 3;
	EQUAL(ibv_post_recv(p.a.qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);

	begin_case("inline data");
	wrs[2].send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	sges[0].length = 65;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);
	sges[0].length = 1 << 20;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);
	sges[0].length = 8;
	wrs[2].opcode = IBV_WR_RDMA_READ;
	EQUAL(ibv_post_send(p.a.qp, &wrs[2], &bad), EINVAL);

	begin_case("a poll for nothing, and a wrong one");
	struct ibv_wc wc;
	EQUAL(ibv_poll_cq(p.a.send_cq, 0, &wc), 0);
	CHECK(ibv_poll_cq(p.a.send_cq, -1, &wc) < 0);
	CHECK(ibv_poll_cq(p.a.send_cq, 1, NULL) < 0);

	begin_case("an empty list");
	EQUAL(ibv_post_send(p.a.qp, NULL, &bad), 0);

	begin_case("objects in use");
	EQUAL(ibv_destroy_cq(p.a.send_cq), EBUSY);
	EQUAL(ibv_dealloc_pd(p.a.pd), EBUSY);
	EQUAL(ibv_destroy_comp_channel(p.a.channel), EBUSY);
	end_case();
	pair_down(&p);
}

static void shared_receives(void)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
	};
	struct ibv_srq_attr attr = {.max_wr = 4, .srq_limit = 5};
	struct ibv_srq *srq;
	struct ibv_recv_wr recv = {}, *bad;
	struct ibv_qp_init_attr qp_init = plain_qp();
	struct ibv_qp *qp;
	uint32_t number;

	begin_case("kinds of shared receive queues");
	IS_NULL(ibv_create_srq_ex(context, &init), EOPNOTSUPP);
	init.srq_type = IBV_SRQT_TM;
	IS_NULL(ibv_create_srq_ex(context, &init), EOPNOTSUPP);
	init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	IS_NULL(ibv_create_srq_ex(context, &init), EINVAL);
	init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	init.srq_type = IBV_SRQT_BASIC;
	srq = ibv_create_srq_ex(context, &init);
	NEED(srq);
	EQUAL(ibv_get_srq_num(srq, &number), EOPNOTSUPP);

	begin_case("attributes of a shared receive queue");
	EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	EQUAL(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	attr.srq_limit = 2;
	EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	attr.max_wr = 16;
	EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	memset(&attr, 0xee, sizeof(attr));
	EQUAL(ibv_query_srq(srq, &attr), 0);
	EQUAL(attr.max_wr, 16);
	EQUAL(attr.max_sge, 1);

	begin_case("receives go to the shared queue only");
	qp_init.srq = srq;
	qp = ibv_create_qp(pd, &qp_init);
	NEED(qp);
	EQUAL(ibv_post_recv(qp, &recv, &bad), EINVAL);
	EQUAL(ibv_destroy_srq(srq), EBUSY);
	EQUAL(ibv_destroy_qp(qp), 0);

	begin_case("a full shared receive queue");
	int posted = 0, error;
	while ((error = ibv_post_srq_recv(srq, &recv, &bad)) == 0 && posted < 100000)
		posted++;
	EQUAL(error, ENOMEM);
	EQUAL(posted, 16);
	CHECK(bad == &recv);
	attr.max_wr = 4;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) != 0);
	EQUAL(ibv_destroy_srq(srq), 0);
}

static void connections(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id, *second, *request;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct sockaddr_storage strange = {.ss_family = AF_UNIX};
	struct ibv_qp_init_attr init = plain_qp();
	uint8_t tos = 8;
	int number = 1;

	NEED(channel);
	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	begin_case("calls in the wrong order");
	MINUS_ONE(rdma_resolve_route(id, 100), EINVAL);
	MINUS_ONE(rdma_connect(id, &param), EINVAL);
	MINUS_ONE(rdma_accept(id, &param), EINVAL);
	MINUS_ONE(rdma_reject(id, NULL, 0), EINVAL);
	MINUS_ONE(rdma_disconnect(id), EINVAL);
	MINUS_ONE(rdma_create_qp(id, NULL, &init), EINVAL);
	MINUS_ONE(rdma_get_request(id, &request), EINVAL);
	MINUS_ONE(rdma_establish(id), EINVAL);

	begin_case("addresses");
	MINUS_ONE(rdma_bind_addr(id, NULL), EINVAL);
	MINUS_ONE(rdma_bind_addr(id, (struct sockaddr *)&strange), EINVAL);
	MINUS_ONE(rdma_resolve_addr(id, NULL, NULL, 100), EINVAL);
	MINUS_ONE(rdma_resolve_addr(id, (struct sockaddr *)&strange, loopback(AF_INET, 1), 100), EINVAL);
	struct sockaddr_in foreign = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.1")};
	MINUS_ONE(rdma_bind_addr(id, (struct sockaddr *)&foreign), EADDRNOTAVAIL);
	EQUAL(rdma_bind_addr(id, loopback(AF_INET, 0)), 0);
	MINUS_ONE(rdma_bind_addr(id, loopback(AF_INET, 0)), EINVAL);
	EQUAL(rdma_listen(id, 1), 0);
	NEED(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
	errno = 0;
	CHECK(rdma_bind_addr(second, loopback(AF_INET, rdma_get_src_port(id))) == -1 ||
	      rdma_listen(second, 1) == -1);
	EQUAL(errno, EADDRINUSE);

	begin_case("too many Reads asked for");
	struct rdma_cm_id *active = towards(channel, id);
	EQUAL(rdma_create_qp(active, NULL, &(struct ibv_qp_init_attr){.cap = {.max_send_wr = 1, .max_recv_wr = 1},
								      .qp_type = IBV_QPT_RC}),
	      0);
	param.responder_resources = 254;
	MINUS_ONE(rdma_connect(active, &param), EINVAL);

	begin_case("a second queue pair on an id");
	MINUS_ONE(rdma_create_qp(active, NULL, &init), EINVAL);
	rdma_destroy_qp(active);
	EQUAL(rdma_destroy_id(active), 0);

	begin_case("options");
	EQUAL(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	EQUAL(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, 4), 0);
	EQUAL(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, 4), 0);
	EQUAL(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &tos, 1), 0);
	MINUS_ONE(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, 4), EINVAL);
	MINUS_ONE(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &tos, 1), EINVAL);
	MINUS_ONE(rdma_set_option(second, RDMA_OPTION_ID, 99, &number, 4), ENOSYS);
	MINUS_ONE(rdma_set_option(second, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &number, 4), ENOSYS);
	MINUS_ONE(rdma_set_option(second, 7, 0, &number, 4), EINVAL);

	begin_case("multicast");
	MINUS_ONE(rdma_join_multicast(second, NULL, NULL), EINVAL);
	MINUS_ONE(rdma_join_multicast(second, loopback(AF_INET, 0), NULL), EOPNOTSUPP);
	MINUS_ONE(rdma_leave_multicast(second, loopback(AF_INET, 0)), EADDRNOTAVAIL);
	struct rdma_cm_join_mc_attr_ex join = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED};
	MINUS_ONE(rdma_join_multicast_ex(second, &join, NULL), ENOTSUP);
	join.comp_mask = 0;
	MINUS_ONE(rdma_join_multicast_ex(second, &join, NULL), EINVAL);

	begin_case("enhanced connection establishment");
	struct ibv_ece ece = {.vendor_id = 5};
	EQUAL(rdma_set_local_ece(second, &ece), 0);
	EQUAL(rdma_get_remote_ece(second, &ece), 0);
	EQUAL(ece.vendor_id, 0);
	ece.comp_mask = 1;
	MINUS_ONE(rdma_set_local_ece(second, &ece), EINVAL);
	EQUAL(rdma_notify(second, IBV_EVENT_COMM_EST), 0);

	begin_case("names");
	struct rdma_addrinfo *info, hints = {.ai_flags = RAI_NUMERICHOST};
	MINUS_ONE(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
	EQUAL(rdma_getaddrinfo("not a number", "1", &hints, &info), EAI_NONAME);
	EQUAL(rdma_destroy_id(second), 0);
	EQUAL(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0]);
	NEED(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	NEED(pd = ibv_alloc_pd(context));
	NEED(cq = ibv_create_cq(context, 16, NULL, NULL, 0));
	null_objects();
	sizes();
	kinds();
	states();
	work_requests();
	shared_receives();
	connections();
	begin_case("everything can be ended");
	EQUAL(ibv_destroy_cq(cq), 0);
	EQUAL(ibv_dealloc_pd(pd), 0);
	EQUAL(ibv_close_device(context), 0);
	end_program();
}
