/* Two connected queue pairs in one process, over loopback. */
#ifndef WEFT_PAIR_H
#define WEFT_PAIR_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "check.h"

enum { BUFFER = 1 << 20 };

struct side {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	unsigned char *buffer;
};

struct pair {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct side a, b; /* the active and the passive one */
};

struct wishes {
	int family; /* 0: AF_INET */
	int depth;  /* 0: 64 */
	int sges;   /* 0: 16 */
	int inline_data;
	int sig_all;
	int srq; /* the passive side receives from a shared queue of this depth */
	int cqe; /* entries of the active side's send CQ; 0: plenty */
};

static inline struct sockaddr *loopback(int family, int port)
{
	static struct sockaddr_storage storage[4];
	static int next;
	struct sockaddr_storage *addr = &storage[next++ % 4];

	memset(addr, 0, sizeof(*addr));
	if (family == AF_INET6) {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)addr;
		v6->sin6_family = AF_INET6;
		v6->sin6_port = port;
		v6->sin6_addr = in6addr_loopback;
	} else {
		struct sockaddr_in *v4 = (struct sockaddr_in *)addr;
		v4->sin_family = AF_INET;
		v4->sin_port = port;
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	return (struct sockaddr *)addr;
}

/* How long what has to come is waited for, in milliseconds: a machine may stand still for seconds. */
enum { PATIENCE = 10000 };

static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Whether a descriptor becomes readable within so many milliseconds. */
static inline int readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1 && (p.revents & POLLIN);
}

/* The next event, which has to be this one; the caller acknowledges it. */
static inline struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	NEED(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type)
		fprintf(stderr, "got %s (status %d), not %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
	NEED(event->event == type);
	return event;
}

static inline struct rdma_cm_id *expect_ack(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = expect(channel, type);
	struct rdma_cm_id *id = event->id;

	NEED(rdma_ack_cm_event(event) == 0);
	return id;
}

static inline void side_queues(struct side *side, const struct wishes *w, int passive)
{
	struct ibv_context *context = side->id->verbs;
	int cqe = 1024;
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = w->depth ? w->depth : 64,
			.max_recv_wr = w->depth ? w->depth : 64,
			.max_send_sge = w->sges ? w->sges : 16,
			.max_recv_sge = w->sges ? w->sges : 16,
			.max_inline_data = w->inline_data},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = w->sig_all,
	};

	NEED(context);
	NEED(side->pd = ibv_alloc_pd(context));
	NEED(side->channel = ibv_create_comp_channel(context));
	NEED(side->send_cq =
		     ibv_create_cq(context, !passive && w->cqe ? w->cqe : cqe, side, side->channel, 0));
	NEED(side->recv_cq = ibv_create_cq(context, cqe, side, side->channel, 0));
	NEED(side->buffer = calloc(1, BUFFER));
	NEED(side->mr = ibv_reg_mr(side->pd, side->buffer, BUFFER,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	if (passive && w->srq) {
		struct ibv_srq_init_attr srq = {.attr = {.max_wr = w->srq, .max_sge = 4}};
		NEED(side->srq = ibv_create_srq(side->pd, &srq));
	}
	init.send_cq = side->send_cq;
	init.recv_cq = side->recv_cq;
	init.srq = side->srq;
	NEED(rdma_create_qp(side->id, side->pd, &init) == 0);
	side->qp = side->id->qp;
}

/* A listener on an ephemeral loopback port. */
static inline struct rdma_cm_id *listen_on(struct rdma_event_channel *channel, int family, int backlog)
{
	struct rdma_cm_id *id;

	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_bind_addr(id, loopback(family, 0)) == 0);
	NEED(rdma_listen(id, backlog) == 0);
	return id;
}

/* An id that is ready to connect to a listener. */
static inline struct rdma_cm_id *towards(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;
	int family = rdma_get_local_addr(listener)->sa_family;

	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_resolve_addr(id, NULL, loopback(family, rdma_get_src_port(listener)), PATIENCE) == 0);
	expect_ack(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(rdma_resolve_route(id, PATIENCE) == 0);
	expect_ack(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static inline void pair_up(struct pair *p, struct wishes w)
{
	struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16};

	memset(p, 0, sizeof(*p));
	NEED(p->channel = rdma_create_event_channel());
	p->listener = listen_on(p->channel, w.family, 8);
	p->a.id = towards(p->channel, p->listener);
	side_queues(&p->a, &w, 0);
	NEED(rdma_connect(p->a.id, &param) == 0);
	p->b.id = expect_ack(p->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	side_queues(&p->b, &w, 1);
	NEED(rdma_accept(p->b.id, &param) == 0);
	expect_ack(p->channel, RDMA_CM_EVENT_ESTABLISHED);
	expect_ack(p->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static inline void side_down(struct side *s)
{
	if (s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->srq)
		EQUAL(ibv_destroy_srq(s->srq), 0);
	EQUAL(rdma_destroy_id(s->id), 0);
	EQUAL(ibv_destroy_cq(s->send_cq), 0);
	EQUAL(ibv_destroy_cq(s->recv_cq), 0);
	EQUAL(ibv_destroy_comp_channel(s->channel), 0);
	EQUAL(ibv_dereg_mr(s->mr), 0);
	EQUAL(ibv_dealloc_pd(s->pd), 0);
	free(s->buffer);
}

static inline void pair_down(struct pair *p)
{
	side_down(&p->a);
	side_down(&p->b);
	EQUAL(rdma_destroy_id(p->listener), 0);
	rdma_destroy_event_channel(p->channel);
}

/* The next completion. `other` is a queue whose polling keeps the peer going. */
static inline int reap(struct ibv_cq *cq, struct ibv_wc *wc)
{
	double end = now() + PATIENCE / 1e3;

	memset(wc, 0xee, sizeof(*wc));
	do {
		int got = ibv_poll_cq(cq, 1, wc);
		if (got)
			return got;
	} while (now() < end);
	fprintf(stderr, "no completion came\n");
	return 0;
}

/* That nothing completes for a while. */
static inline int quiet(struct ibv_cq *cq, int ms)
{
	struct ibv_wc wc;
	double end = now() + ms / 1e3;

	do {
		if (ibv_poll_cq(cq, 1, &wc))
			return 0;
	} while (now() < end);
	return 1;
}

/* That the next completion is this one. */
#define COMPLETES(cq, id, st, op)                                                                              \
	do {                                                                                                   \
		struct ibv_wc wc_;                                                                             \
		EQUAL(reap(cq, &wc_), 1);                                                                      \
		EQUAL(wc_.wr_id, id);                                                                          \
		EQUAL(wc_.status, st);                                                                         \
		if (wc_.status == IBV_WC_SUCCESS)                                                              \
			EQUAL(wc_.opcode, op);                                                                 \
	} while (0)

static inline struct ibv_sge sge_of(struct side *s, size_t offset, size_t length)
{
	return (struct ibv_sge){(uintptr_t)s->buffer + offset, length, s->mr->lkey};
}

static inline int post_recv(struct side *s, uint64_t id, size_t offset, size_t length)
{
	struct ibv_sge sge = sge_of(s, offset, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
}

static inline int post(struct side *s, uint64_t id, enum ibv_wr_opcode opcode, int flags, size_t offset,
		       size_t length, struct side *peer, size_t peer_offset)
{
	struct ibv_sge sge = sge_of(s, offset, length);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = flags},
			   *bad;

	if (peer) {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buffer + peer_offset;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

/* Octets that say where they belong. */
static inline void fill(unsigned char *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (unsigned char)(seed + i * 7 + (i >> 8) * 13);
}

static inline int holds(const unsigned char *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != (unsigned char)(seed + i * 7 + (i >> 8) * 13)) {
			fprintf(stderr, "octet %zu of %zu is %#x\n", i, length, at[i]);
			return 0;
		}
	return 1;
}

#endif
