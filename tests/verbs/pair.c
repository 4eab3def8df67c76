/* Two connected ends in one process. */
#include "env.h"

static struct ibv_cq *side_cq(struct side *s, const struct wish *w, int cqe)
{
	if (!w->cq_ex) {
		struct ibv_cq *cq = ibv_create_cq(s->ctx, cqe, s, s->channel, 0);
		NEED(cq);
		return cq;
	}
	struct ibv_cq_init_attr_ex init = {
		.cqe = (uint32_t)cqe, .cq_context = s, .channel = s->channel, .wc_flags = w->wc};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(s->ctx, &init);
	if (!cq)
		absent_or_wrong("ibv_create_cq_ex");
	return ibv_cq_ex_to_cq(cq);
}

struct ibv_qp_init_attr init_of(struct side *s, const struct wish *w)
{
	int sges = w->sges ? w->sges : at_most(16, env.dev.max_sge);

	return (struct ibv_qp_init_attr){
		.send_cq = s->scq,
		.recv_cq = s->rcq,
		.srq = s->srq,
		.cap = {.max_send_wr = w->depth ? w->depth : 64,
			.max_recv_wr = w->depth ? w->depth : 64,
			.max_send_sge = sges,
			.max_recv_sge = sges,
			.max_inline_data = w->inline_data},
		.qp_type = w->type ? w->type : IBV_QPT_RC,
		.sq_sig_all = w->sig_all,
	};
}

void side_objects(struct side *s, const struct wish *w, bool passive)
{
	int access = passive ? w->access : w->a_access;

	s->ctx = s->id ? s->id->verbs : env.ctx;
	NEED(s->ctx);
	NEED(s->pd = ibv_alloc_pd(s->ctx));
	NEED(s->channel = ibv_create_comp_channel(s->ctx));
	s->scq = side_cq(s, w, !passive && w->a_scqe ? w->a_scqe : 1024);
	s->rcq = side_cq(s, w, passive && w->b_rcqe ? w->b_rcqe : 1024);
	s->buf = some_memory(BUF);
	if (env.dev.atomic_cap != IBV_ATOMIC_NONE && !access)
		access = ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC;
	NEED(s->mr = ibv_reg_mr(s->pd, s->buf, BUF, access ? access : ALL_ACCESS));
	if (passive && w->srq) {
		struct ibv_srq_init_attr srq = {.attr = {.max_wr = w->srq, .max_sge = 2}};
		NEED(s->srq = ibv_create_srq(s->pd, &srq));
	}
}

static void side_qp(struct side *s, const struct wish *w)
{
	struct ibv_qp_init_attr init = init_of(s, w);

	if (w->ops) {
		struct ibv_qp_init_attr_ex ex = {
			.send_cq = init.send_cq, .recv_cq = init.recv_cq, .srq = init.srq, .cap = init.cap,
			.qp_type = init.qp_type, .sq_sig_all = init.sq_sig_all,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = s->pd, .send_ops_flags = w->ops,
		};
		if (s->id ? rdma_create_qp_ex(s->id, &ex) != 0 : !(s->qp = ibv_create_qp_ex(s->ctx, &ex)))
			absent_or_wrong("ibv_create_qp_ex with send_ops_flags");
	} else if (s->id ? rdma_create_qp(s->id, s->pd, &init) != 0 : !(s->qp = ibv_create_qp(s->pd, &init))) {
		absent_or_wrong(init.qp_type == IBV_QPT_RC   ? "a queue pair of type RC"
				: init.qp_type == IBV_QPT_UC ? "a queue pair of type UC"
							     : "a queue pair of type UD");
	}
	if (s->id)
		s->qp = s->id->qp;
}

static void up_by_cm(struct pair *p, const struct wish *w)
{
	uint8_t reads = (uint8_t)(w->max_reads ? w->max_reads : at_most(16, env.dev.max_qp_rd_atom));
	struct rdma_conn_param param = {
		.responder_resources = reads, .initiator_depth = reads, .retry_count = 7, .rnr_retry_count = 7};

	NEED(p->events = rdma_create_event_channel());
	p->listener = listen_on(p->events, w->family ? w->family : AF_INET, 8);
	p->a.id = towards(p->events, p->listener);
	if (strcmp(ibv_get_device_name(p->a.id->verbs->device), ibv_get_device_name(env.ctx->device)) != 0) {
		CHECKF(false, "address %s belongs to device %s, not %s: give the device's with -a", env.address,
		       ibv_get_device_name(p->a.id->verbs->device), ibv_get_device_name(env.ctx->device));
		case_end();
	}
	side_objects(&p->a, w, false);
	side_qp(&p->a, w);
	NEED(rdma_connect(p->a.id, &param) == 0);
	p->b.id = expected(p->events, RDMA_CM_EVENT_CONNECT_REQUEST);
	side_objects(&p->b, w, true);
	side_qp(&p->b, w);
	NEED(rdma_accept(p->b.id, &param) == 0);
	expected(p->events, RDMA_CM_EVENT_ESTABLISHED);
	expected(p->events, RDMA_CM_EVENT_ESTABLISHED);
}

void pair_apart(struct pair *p, struct wish w)
{
	*p = (struct pair){};
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p->b : &p->a;
		side_objects(s, &w, i);
		side_qp(s, &w);
	}
}

void pair_up(struct pair *p, struct wish w)
{
	/* The connection manager connects RC only. */
	if (env.by == BY_CM && (w.type == 0 || w.type == IBV_QPT_RC)) {
		*p = (struct pair){};
		up_by_cm(p, &w);
		return;
	}
	pair_apart(p, w);
	connect_by_gid(p->a.qp, p->b.qp, -1);
}

void side_down(struct side *s)
{
	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	else if (!s->id && s->qp)
		EQ(ibv_destroy_qp(s->qp), 0);
	if (s->srq)
		EQ(ibv_destroy_srq(s->srq), 0);
	if (s->id)
		EQ(rdma_destroy_id(s->id), 0);
	if (s->scq)
		EQ(ibv_destroy_cq(s->scq), 0);
	if (s->rcq)
		EQ(ibv_destroy_cq(s->rcq), 0);
	if (s->channel)
		EQ(ibv_destroy_comp_channel(s->channel), 0);
	if (s->mr)
		EQ(ibv_dereg_mr(s->mr), 0);
	if (s->pd)
		EQ(ibv_dealloc_pd(s->pd), 0);
	if (s->buf)
		munmap(s->buf, BUF);
}

void pair_down(struct pair *p)
{
	side_down(&p->a);
	side_down(&p->b);
	if (p->listener)
		EQ(rdma_destroy_id(p->listener), 0);
	if (p->events)
		rdma_destroy_event_channel(p->events);
}
