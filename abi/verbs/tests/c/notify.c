/* Completion events: when the descriptor is readable, what blocks, what has to be acknowledged. */
#include <pthread.h>
#include <sys/epoll.h>

#include "pair.h"

static struct pair p;

static void arm(struct ibv_cq *cq, int solicited)
{
	EQUAL(ibv_req_notify_cq(cq, solicited), 0);
}

static void a_message(int flags)
{
	struct ibv_wc wc;

	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(post(&p.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0, 64, NULL, 0) == 0);
	NEED(reap(p.a.send_cq, &wc) == 1);
}

static int got_event(struct side *s, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(s->channel, &cq, &context))
		return 0;
	ibv_ack_cq_events(cq, 1);
	return cq == want && context == s;
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void readability(void)
{
	int fd = p.b.channel->fd;

	begin_case("no event without a request");
	a_message(0);
	CHECK(!readable(fd, 50));
	drain(p.b.recv_cq);

	begin_case("one event for one request");
	arm(p.b.recv_cq, 0);
	CHECK(!readable(fd, 20));
	a_message(0);
	a_message(0);
	CHECK(readable(fd, PATIENCE));
	CHECK(got_event(&p.b, p.b.recv_cq));
	CHECK(!readable(fd, 50));
	drain(p.b.recv_cq);

	begin_case("a request for solicited completions only");
	arm(p.b.recv_cq, 1);
	a_message(0);
	CHECK(!readable(fd, 50));
	a_message(IBV_SEND_SOLICITED);
	CHECK(readable(fd, PATIENCE));
	CHECK(got_event(&p.b, p.b.recv_cq));
	drain(p.b.recv_cq);

	begin_case("an event for the send queue");
	arm(p.a.send_cq, 0);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(post(&p.a, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0) == 0);
	CHECK(readable(p.a.channel->fd, PATIENCE));
	CHECK(got_event(&p.a, p.a.send_cq));
	drain(p.a.send_cq);
	drain(p.b.recv_cq);

	begin_case("epoll, and a duplicate of the descriptor");
	int set = epoll_create1(0), copy = dup(fd);
	struct epoll_event event = {.events = EPOLLIN};
	NEED(set >= 0 && copy >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0);
	arm(p.b.recv_cq, 0);
	EQUAL(epoll_wait(set, &event, 1, 20), 0);
	a_message(0);
	EQUAL(epoll_wait(set, &event, 1, PATIENCE), 1);
	CHECK(got_event(&p.b, p.b.recv_cq));
	EQUAL(epoll_wait(set, &event, 1, 20), 0);
	close(copy);
	close(set);
	drain(p.b.recv_cq);
}

static void non_blocking(void)
{
	struct ibv_cq *cq;
	void *context;
	int fd = p.b.channel->fd, flags = fcntl(fd, F_GETFL);

	begin_case("O_NONBLOCK is honoured");
	NEED(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
	MINUS_ONE(ibv_get_cq_event(p.b.channel, &cq, &context), EAGAIN);
	arm(p.b.recv_cq, 0);
	MINUS_ONE(ibv_get_cq_event(p.b.channel, &cq, &context), EAGAIN);
	a_message(0);
	CHECK(readable(fd, PATIENCE));
	CHECK(got_event(&p.b, p.b.recv_cq));
	MINUS_ONE(ibv_get_cq_event(p.b.channel, &cq, &context), EAGAIN);
	NEED(fcntl(fd, F_SETFL, flags) == 0);
	drain(p.b.recv_cq);
}

static void *send_later(void *unused)
{
	(void)unused;
	usleep(50000);
	NEED(post(&p.a, 7, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0) == 0);
	return NULL;
}

static void blocking(void)
{
	pthread_t thread;
	double start = now();

	begin_case("a thread that waits is woken");
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	arm(p.b.recv_cq, 0);
	NEED(pthread_create(&thread, NULL, send_later, NULL) == 0);
	CHECK(got_event(&p.b, p.b.recv_cq));
	CHECK(now() - start > 0.04);
	pthread_join(thread, NULL);
	drain(p.b.recv_cq);
	drain(p.a.send_cq);
}

static struct ibv_cq *given_up;
static volatile int given_up_done;

static void *destroy_it(void *unused)
{
	(void)unused;
	EQUAL(ibv_destroy_cq(given_up), 0);
	given_up_done = 1;
	return NULL;
}

static void acknowledging(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(p.a.id->verbs);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_recv_wr recv = {}, *bad;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	pthread_t thread;
	void *context;

	begin_case("destroying a queue waits for its events");
	NEED(channel && (given_up = ibv_create_cq(p.a.id->verbs, 4, NULL, channel, 0)));
	EQUAL(channel->refcnt, 1);
	init.send_cq = init.recv_cq = given_up;
	NEED(qp = ibv_create_qp(p.a.pd, &init));
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	NEED(ibv_post_recv(qp, &recv, &bad) == 0);
	arm(given_up, 0);
	attr.qp_state = IBV_QPS_ERR;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	NEED(ibv_get_cq_event(channel, &cq, &context) == 0);
	CHECK(cq == given_up && context == NULL);
	EQUAL(ibv_destroy_qp(qp), 0);
	NEED(pthread_create(&thread, NULL, destroy_it, NULL) == 0);
	usleep(50000);
	CHECK(!given_up_done);
	ibv_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	CHECK(given_up_done);

	begin_case("a channel without queues can be destroyed");
	EQUAL(channel->refcnt, 0);
	int fd = channel->fd;
	EQUAL(ibv_destroy_comp_channel(channel), 0);
	MINUS_ONE(fcntl(fd, F_GETFD), EBADF);
}

static void dropped(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(p.a.id->verbs);
	struct ibv_cq *cq = ibv_create_cq(p.a.id->verbs, 4, NULL, channel, 0), *got;
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC,
					.send_cq = cq,
					.recv_cq = cq};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_recv_wr recv = {}, *bad;
	struct ibv_qp *qp;
	void *context;

	begin_case("events of a destroyed queue are gone");
	NEED(channel && cq && (qp = ibv_create_qp(p.a.pd, &init)));
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	NEED(ibv_post_recv(qp, &recv, &bad) == 0);
	arm(cq, 0);
	attr.qp_state = IBV_QPS_ERR;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	CHECK(readable(channel->fd, PATIENCE));
	EQUAL(ibv_destroy_qp(qp), 0);
	EQUAL(ibv_destroy_cq(cq), 0);
	CHECK(!readable(channel->fd, 20));
	NEED(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	MINUS_ONE(ibv_get_cq_event(channel, &got, &context), EAGAIN);
	EQUAL(ibv_destroy_comp_channel(channel), 0);
}

int main(void)
{
	pair_up(&p, (struct wishes){});
	readability();
	non_blocking();
	blocking();
	acknowledging();
	dropped();
	end_case();
	pair_down(&p);
	end_program();
}
