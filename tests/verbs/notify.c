/* Completion channels: what is told, when, and how often. */
#include "env.h"

#include <sys/epoll.h>

/* --- channels */

CASE("channel.fields")
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env.ctx);

	NEED(channel);
	CHECK(channel->context == env.ctx);
	CHECK(fcntl(channel->fd, F_GETFL) >= 0);
	CHECK(!readable(channel->fd, 0));
	int fd = channel->fd;
	EQ(ibv_destroy_comp_channel(channel), 0);
	FAILS(fcntl(fd, F_GETFD), EBADF);
}

CASE("channel.with-a-queue-is-busy")
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env.ctx);
	struct ibv_cq *cq = ibv_create_cq(env.ctx, 8, NULL, channel, 0);

	NEED(cq);
	EQ(channel->refcnt, 1);
	EQ(ibv_destroy_comp_channel(channel), EBUSY);
	EQ(ibv_destroy_cq(cq), 0);
	EQ(channel->refcnt, 0);
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
				CHECK(comes(p.a.channel->fd));
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
		double end = deadline();
		memcpy(p.a.buf, &(uint64_t){polls + 1}, 8);
		memcpy(p.b.buf, &(uint64_t){polls + 1}, 8);

		NEED(post(&p.a, polls, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.b, 4096) == 0);
		int found = poll_times(p.a.scq, polls, &wc);
		NEED(post(&p.b, polls, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, &p.a, 4096) == 0);
		while ((*there != polls + 1 || *here != polls + 1) && now() < end)
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

CASE("notify.non-blocking")
{
	struct pair p;
	struct ibv_cq *cq;
	void *context;

	pair_up(&p, (struct wish){});
	NEED(fcntl(p.b.channel->fd, F_SETFL, fcntl(p.b.channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	FAILS(ibv_get_cq_event(p.b.channel, &cq, &context), EAGAIN);
	one_send(&p, 1, 0);
	one_event(&p.b, p.b.rcq);
	FAILS(ibv_get_cq_event(p.b.channel, &cq, &context), EAGAIN);
	pair_down(&p);
}

CASE("notify.by-epoll-on-a-duplicate-of-the-descriptor")
{
	struct pair p;
	struct epoll_event event = {.events = EPOLLIN};

	pair_up(&p, (struct wish){});
	int set = epoll_create1(0), copy = dup(p.b.channel->fd);
	NEED(set >= 0 && copy >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0);
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	EQ(epoll_wait(set, &event, 1, 20), 0);
	one_send(&p, 1, 0);
	EQ(epoll_wait(set, &event, 1, patience), 1);
	take_event(&p.b, p.b.rcq);
	EQ(epoll_wait(set, &event, 1, 20), 0);
	EQ(close(copy), 0);
	EQ(close(set), 0);
	pair_down(&p);
}

CASE("notify.events-of-a-destroyed-queue-are-gone")
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env.ctx);
	struct ibv_cq *cq = ibv_create_cq(env.ctx, 4, NULL, channel, 0), *got;
	struct ibv_qp *qp = a_qp(a_pd(), cq);
	struct ibv_qp_attr attr = attr_init();
	struct ibv_recv_wr recv = {}, *bad;
	void *context;

	NEED(channel && cq);
	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_RC)) == 0);
	NEED(ibv_post_recv(qp, &recv, &bad) == 0);
	EQ(ibv_req_notify_cq(cq, 0), 0);
	NEED(to_state(qp, IBV_QPS_ERR) == 0);
	NEED(comes(channel->fd));
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(cq), 0);
	CHECK(!readable(channel->fd, QUIET));
	NEED(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(ibv_get_cq_event(channel, &got, &context), EAGAIN);
	EQ(ibv_destroy_comp_channel(channel), 0);
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
		NEED(comes(p.b.channel->fd));
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
		NEED(comes(p.b.channel->fd));
		NEED(ibv_get_cq_event(p.b.channel, &got, &context) == 0);
		WORKS(p.b.rcq, i);
	}
	ibv_ack_cq_events(p.b.rcq, 3);
	pair_down(&p);
}

static void acknowledge(void *of)
{
	ibv_ack_cq_events(of, 1);
}

CASE("notify.destroying-waits-for-the-acknowledgement")
{
	struct pair p;
	struct ibv_cq *got;
	void *context;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	one_send(&p, 1, 0);
	NEED(comes(p.b.channel->fd));
	NEED(ibv_get_cq_event(p.b.channel, &got, &context) == 0);
	struct later later = {.acknowledge = acknowledge, .of = p.b.rcq};
	if (p.b.id)
		rdma_destroy_qp(p.b.id);
	else
		NEED(ibv_destroy_qp(p.b.qp) == 0);
	acknowledge_later(&later);
	EQ(ibv_destroy_cq(p.b.rcq), 0);
	CHECK(was_waited_for(&later));
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
