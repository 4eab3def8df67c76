/* Completion channels: what is told, when, and how often. */
#include "env.h"

/* --- channels */

CASE("channel.fields")
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env.ctx);

	NEED(channel);
	CHECK(channel->context == env.ctx);
	CHECK(fcntl(channel->fd, F_GETFL) >= 0);
	CHECK(!readable(channel->fd, 0));
	EQ(ibv_destroy_comp_channel(channel), 0);
}

CASE("channel.with-a-queue-is-busy")
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env.ctx);
	struct ibv_cq *cq = ibv_create_cq(env.ctx, 8, NULL, channel, 0);

	NEED(cq);
	EQ(ibv_destroy_comp_channel(channel), EBUSY);
	EQ(ibv_destroy_cq(cq), 0);
	EQ(ibv_destroy_comp_channel(channel), 0);
}

CASE("channel.non-blocking")
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env.ctx);
	struct ibv_cq *cq;
	void *context;

	NEED(channel);
	NEED(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	FAILS(ibv_get_cq_event(channel, &cq, &context), EAGAIN);
	EQ(ibv_destroy_comp_channel(channel), 0);
}

/* One send, signalled to the receiver with these flags. */
static void one_send(struct pair *p, uint64_t id, int flags)
{
	NEED(post_recv(&p->b, id, 0, 64) == 0);
	NEED(send_of(&p->a, id, IBV_SEND_SIGNALED | flags, 0, 8) == 0);
	WORKS(p->a.scq, id);
}

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

CASE("notify.once")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	one_send(&p, 1, 0);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 1);
	/* A second completion gives no event: the request was used up. */
	one_send(&p, 2, 0);
	WORKS(p.b.rcq, 2);
	CHECK(!readable(p.b.channel->fd, QUIET));
	pair_down(&p);
}

CASE("notify.without-a-request-is-quiet")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	one_send(&p, 1, 0);
	WORKS(p.b.rcq, 1);
	CHECK(!readable(p.b.channel->fd, QUIET));
	pair_down(&p);
}

CASE("notify.again-for-each-event")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 10; i++) {
		EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
		one_send(&p, i, 0);
		one_event(&p.b, p.b.rcq);
		WORKS(p.b.rcq, i);
	}
	pair_down(&p);
}

CASE("notify.requested-twice-tells-once")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	one_send(&p, 1, 0);
	one_event(&p.b, p.b.rcq);
	one_send(&p, 2, 0);
	WORKS(p.b.rcq, 1);
	WORKS(p.b.rcq, 2);
	CHECK(!readable(p.b.channel->fd, QUIET));
	pair_down(&p);
}

CASE("notify.of-a-send-completion")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.a.scq, 0), 0);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	one_event(&p.a, p.a.scq);
	WORKS(p.a.scq, 1);
	pair_down(&p);
}

/* Who polls may stop at any time: then the device works by itself, and tells. */

static int poll_times(struct ibv_cq *cq, unsigned times, struct ibv_wc *wc)
{
	int found = 0;

	for (unsigned i = 0; i < times && found == 0; i++)
		found = ibv_poll_cq(cq, 1, wc);
	return found;
}

CASE("notify.after-any-number-of-polls")
{
	struct pair p;
	struct ibv_wc wc = {};

	pair_up(&p, (struct wish){});
	for (unsigned polls = 0; polls < 200; polls++) {
		NEED(post(&p.a, polls, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.b, 4096) == 0);
		int found = poll_times(p.a.scq, polls, &wc);
		EQ(ibv_req_notify_cq(p.a.scq, 0), 0);
		if (found == 0)
			found = ibv_poll_cq(p.a.scq, 1, &wc);
		if (found == 0) {
			/* By the descriptor, or in the call. */
			if (polls % 2)
				CHECK(readable(p.a.channel->fd, 5000));
			take_event(&p.a, p.a.scq);
			found = ibv_poll_cq(p.a.scq, 1, &wc);
		}
		EQ(found, 1);
		EQ(wc.status, IBV_WC_SUCCESS);
		EQ(wc.wr_id, polls);
		/* Armed and not used up, it would tell of the next one. */
		while (readable(p.a.channel->fd, 0))
			one_event(&p.a, p.a.scq);
	}
	pair_down(&p);
}

CASE("notify.by-memory-after-any-number-of-polls")
{
	struct pair p;
	struct ibv_wc wc = {};

	pair_up(&p, (struct wish){});
	for (uint64_t polls = 0; polls < 200; polls++) {
		volatile uint64_t *there = (uint64_t *)(p.b.buf + 4096), *here = (uint64_t *)(p.a.buf + 4096);
		double start = now();
		memcpy(p.a.buf, &(uint64_t){polls + 1}, 8);
		memcpy(p.b.buf, &(uint64_t){polls + 1}, 8);

		NEED(post(&p.a, polls, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.b, 4096) == 0);
		int found = poll_times(p.a.scq, polls, &wc);
		NEED(post(&p.b, polls, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.a, 4096) == 0);
		while ((*there != polls + 1 || *here != polls + 1) && now() - start < 5)
			;
		NEED(*there == polls + 1 && *here == polls + 1);
		if (found == 0)
			WORKS(p.a.scq, polls);
		WORKS(p.b.scq, polls);
	}
	pair_down(&p);
}

CASE("notify.not-of-an-unsignalled-send")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.a.scq, 0), 0);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 1, 0, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	CHECK(!readable(p.a.channel->fd, QUIET));
	pair_down(&p);
}

CASE("notify.solicited-only-passes-over-others")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 1), 0);
	one_send(&p, 1, 0);
	WORKS(p.b.rcq, 1);
	CHECK(!readable(p.b.channel->fd, QUIET));
	one_send(&p, 2, IBV_SEND_SOLICITED);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 2);
	pair_down(&p);
}

CASE("notify.any-takes-solicited-too")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	one_send(&p, 1, IBV_SEND_SOLICITED);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

CASE("notify.any-after-solicited-widens")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 1), 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	one_send(&p, 1, 0);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

CASE("notify.solicited-after-any-does-not-narrow")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 1), 0);
	one_send(&p, 1, 0);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

CASE("notify.an-error-counts-as-solicited")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 1), 0);
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	one_event(&p.b, p.b.rcq);
	COMPLETES(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	pair_down(&p);
}

CASE("notify.two-queues-on-a-channel")
{
	struct pair p;
	struct ibv_cq *got[2];
	void *context;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	EQ(ibv_req_notify_cq(p.b.scq, 0), 0);
	NEED(post_recv(&p.a, 1, 0, 64) == 0);
	NEED(send_of(&p.b, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.a.rcq, 1);
	one_send(&p, 3, 0);
	for (int i = 0; i < 2; i++) {
		NEED(readable(p.b.channel->fd, 5000));
		NEED(ibv_get_cq_event(p.b.channel, &got[i], &context) == 0);
	}
	CHECK(got[0] != got[1]);
	CHECK((got[0] == p.b.rcq || got[0] == p.b.scq) && (got[1] == p.b.rcq || got[1] == p.b.scq));
	ibv_ack_cq_events(got[0], 1);
	ibv_ack_cq_events(got[1], 1);
	pair_down(&p);
}

CASE("notify.acknowledged-together")
{
	struct pair p;
	struct ibv_cq *got;
	void *context;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 3; i++) {
		EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
		one_send(&p, i, 0);
		NEED(readable(p.b.channel->fd, 5000));
		NEED(ibv_get_cq_event(p.b.channel, &got, &context) == 0);
		WORKS(p.b.rcq, i);
	}
	ibv_ack_cq_events(p.b.rcq, 3);
	pair_down(&p);
}

struct later {
	struct ibv_cq *cq;
	double acknowledged;
};

static void *acknowledge_later(void *of)
{
	struct later *later = of;

	sleep_ms(150);
	later->acknowledged = now();
	ibv_ack_cq_events(later->cq, 1);
	return NULL;
}

CASE("notify.destroying-waits-for-the-acknowledgement")
{
	struct pair p;
	struct ibv_cq *got;
	void *context;
	pthread_t thread;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	one_send(&p, 1, 0);
	NEED(readable(p.b.channel->fd, 5000));
	NEED(ibv_get_cq_event(p.b.channel, &got, &context) == 0);
	struct later later = {.cq = p.b.rcq};
	if (p.b.id)
		rdma_destroy_qp(p.b.id);
	else
		NEED(ibv_destroy_qp(p.b.qp) == 0);
	NEED(pthread_create(&thread, NULL, acknowledge_later, &later) == 0);
	EQ(ibv_destroy_cq(p.b.rcq), 0);
	CHECK(later.acknowledged > 0 && now() >= later.acknowledged);
	pthread_join(thread, NULL);
	p.b.rcq = NULL;
	p.b.qp = NULL;
	pair_down(&p);
}

static void *get_one(void *of)
{
	struct side *s = of;
	struct ibv_cq *cq = NULL;
	void *context;

	EQ(ibv_get_cq_event(s->channel, &cq, &context), 0);
	CHECK(cq == s->rcq);
	ibv_ack_cq_events(s->rcq, 1);
	return NULL;
}

CASE("notify.wakes-a-blocked-thread")
{
	struct pair p;
	pthread_t thread;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	NEED(pthread_create(&thread, NULL, get_one, &p.b) == 0);
	sleep_ms(20);
	one_send(&p, 1, 0);
	pthread_join(thread, NULL);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

CASE("notify.each-with-its-own-requests-in-a-storm-of-them")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 200; i++) {
		EQ(ibv_req_notify_cq(p.b.rcq, (int)(i & 1)), 0);
		one_send(&p, i, i & 1 ? IBV_SEND_SOLICITED : 0);
		one_event(&p.b, p.b.rcq);
		WORKS(p.b.rcq, i);
	}
	pair_down(&p);
}
