/* The device under test, and two connected ends in one process. */
#include "env.h"

#include <net/if.h>

struct env env = {.address = "127.0.0.1", .address6 = "::1"};

/* --- capabilities */

bool says_unsupported(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == ENOTTY || error == EPROTONOSUPPORT;
}

_Noreturn void absent_or_wrong(const char *what)
{
	int error = errno;

	if (says_unsupported(error))
		SKIP("the device refuses %s (%s)", what, strerror(error));
	CHECKF(false, "%s: errno %d (%s)", what, error, strerror(error));
	case_end();
}

void need_srq(void)
{
	if (env.dev.max_srq == 0)
		SKIP("the device reports max_srq 0");
}

void need_atomics(void)
{
	if (env.dev.atomic_cap == IBV_ATOMIC_NONE)
		SKIP("the device reports no atomics (atomic_cap)");
}

void need_windows(int type)
{
	unsigned flags = type == 1 ? IBV_DEVICE_MEM_WINDOW
				   : IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

	if (!(env.dev.device_cap_flags & flags))
		SKIP("the device reports no memory windows of type %d (device_cap_flags)", type);
}

void need_infiniband(void)
{
	if (env.iwarp)
		SKIP("the device's transport is iWARP");
}

void need_iwarp(void)
{
	if (!env.iwarp)
		SKIP("the device's transport is not iWARP");
}

void need_cm(void)
{
	if (env.by != BY_CM)
		SKIP("the run is by GID and QPN");
}

void need_v6(void)
{
	if (!env.address6)
		SKIP("no IPv6 address of the device is known (-6)");
}

/* No capability tells of immediate data: every InfiniBand device has it, and an iWARP device says so at the post. */
void need_immediate(void)
{
	struct pair p;

	if (!env.iwarp)
		return;
	pair_up(&p, (struct wish){});
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM}, *bad;
	NEED(post_recv(&p.b, 1, 0, 8) == 0);
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (error)
		SKIP("the device's transport is iWARP, and it refuses immediate data (%s)", strerror(error));
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

/* --- objects */

struct ibv_pd *a_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(env.ctx);

	NEED(pd);
	return pd;
}

struct ibv_cq *a_cq(int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(env.ctx, cqe, NULL, NULL, 0);

	NEED(cq);
	return cq;
}

struct ibv_qp *a_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(qp);
	return qp;
}

void *some_memory(size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(at != MAP_FAILED);
	return at;
}

static int at_most(int wanted, int limit)
{
	return wanted < limit ? wanted : limit;
}

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

/* --- bring-up by GID and QPN */

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
		.timeout = 14,
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

/* --- a pair */

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

void pair_up(struct pair *p, struct wish w)
{
	*p = (struct pair){};
	/* The connection manager connects RC only. */
	if (env.by == BY_CM && (w.type == 0 || w.type == IBV_QPT_RC)) {
		up_by_cm(p, &w);
		return;
	}
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p->b : &p->a;
		side_objects(s, &w, i);
		side_qp(s, &w);
	}
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

/* --- posting and reaping */

struct ibv_sge sge(struct side *s, size_t at, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)s->buf + at, length, s->mr->lkey};
}

int post_recv(struct side *s, uint64_t id, size_t at, uint32_t length)
{
	struct ibv_sge list = sge(s, at, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &list, .num_sge = length ? 1 : 0}, *bad;

	return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
}

int post(struct side *s, uint64_t id, enum ibv_wr_opcode op, int flags, size_t at, uint32_t length,
	 const struct side *peer, size_t peer_at)
{
	struct ibv_sge list = sge(s, at, length);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &list,
				 .num_sge = length ? 1 : 0,
				 .opcode = op,
				 .send_flags = (unsigned)flags,
				 .imm_data = htonl(0x01020304)},
			   *bad;

	if (peer) {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf + peer_at;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

int send_of(struct side *s, uint64_t id, int flags, size_t at, uint32_t length)
{
	return post(s, id, IBV_WR_SEND, flags, at, length, NULL, 0);
}

int post_atomic(struct side *s, uint64_t id, enum ibv_wr_opcode op, size_t at, const struct side *peer, size_t peer_at,
		uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge list = sge(s, at, 8);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &list,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = {.remote_addr = (uintptr_t)peer->buf + peer_at,
					       .rkey = peer->mr->rkey,
					       .compare_add = compare_add,
					       .swap = swap}},
			   *bad;

	return ibv_post_send(s->qp, &wr, &bad);
}

bool reap(struct ibv_cq *cq, struct ibv_wc *wc)
{
	double end = now() + 5;

	do {
		if (ibv_poll_cq(cq, 1, wc) == 1)
			return true;
	} while (now() < end);
	return false;
}

bool quiet(struct ibv_cq *cq)
{
	double end = now() + QUIET / 1e3;
	struct ibv_wc wc;

	do {
		if (ibv_poll_cq(cq, 1, &wc))
			return false;
	} while (now() < end);
	return true;
}

void fill(uint8_t *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}

bool holds(const uint8_t *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != (uint8_t)(seed + i * 7 + (i >> 8) * 13))
			return CHECKF(false, "octet %zu of %zu is %#x", i, length, at[i]);
	return true;
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {};
	struct ibv_qp_init_attr init;

	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

bool becomes(struct ibv_qp *qp, enum ibv_qp_state state)
{
	double end = now() + 2;

	while (state_of(qp) != state && now() < end)
		sleep_ms(1);
	return state_of(qp) == state;
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* --- the connection manager */

struct sockaddr *address(int family, int port)
{
	static __thread struct sockaddr_storage storage[4];
	static __thread unsigned next;
	struct sockaddr_storage *at = &storage[next++ % 4];

	*at = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
	if (family == AF_INET6) {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)at;
		v6->sin6_port = (in_port_t)port;
		NEED(inet_pton(AF_INET6, env.address6, &v6->sin6_addr) == 1);
	} else {
		struct sockaddr_in *v4 = (struct sockaddr_in *)at;
		v4->sin_port = (in_port_t)port;
		NEED(inet_pton(AF_INET, env.address, &v4->sin_addr) == 1);
	}
	return (struct sockaddr *)at;
}

size_t address_length(const struct sockaddr *at)
{
	return at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double end = now() + ms / 1e3;
	int got;

	/* A storm of signals interrupts it again and again. */
	do
		got = poll(&p, 1, ms);
	while (got < 0 && errno == EINTR && now() < end);
	return got == 1 && (p.revents & POLLIN);
}

struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	if (!CHECKF(readable(channel->fd, 5000), "no event within 5 s, %s was expected", rdma_event_str(type)))
		case_end();
	NEED(rdma_get_cm_event(channel, &event) == 0);
	if (!CHECKF(event->event == type, "the event is %s (status %d), not %s", rdma_event_str(event->event),
		    event->status, rdma_event_str(type)))
		case_end();
	return event;
}

struct rdma_cm_id *expected(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = expect(channel, type);
	struct rdma_cm_id *id = event->id;

	NEED(rdma_ack_cm_event(event) == 0);
	return id;
}

struct rdma_cm_id *new_id(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

struct rdma_cm_id *listen_on(struct rdma_event_channel *channel, int family, int backlog)
{
	struct rdma_cm_id *id = new_id(channel);

	NEED(rdma_bind_addr(id, address(family, 0)) == 0);
	NEED(rdma_listen(id, backlog) == 0);
	return id;
}

struct rdma_cm_id *towards(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id = new_id(channel);
	int family = rdma_get_local_addr(listener)->sa_family;

	NEED(rdma_resolve_addr(id, NULL, address(family, rdma_get_src_port(listener)), 2000) == 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(rdma_resolve_route(id, 2000) == 0);
	expected(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}
