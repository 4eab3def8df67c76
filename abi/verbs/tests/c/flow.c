/* What happens beside the flow of octets: shared receive queues and their limit, flushing, errors as asynchronous
   events, acknowledgements. */
#include <pthread.h>

#include "pair.h"

enum { SIGNALED = IBV_SEND_SIGNALED };

/* The next asynchronous event within two seconds; 0 if there is none. */
static int next_async(struct ibv_context *context, struct ibv_async_event *event)
{
	if (!readable(context->async_fd, PATIENCE)) {
		fprintf(stderr, "no asynchronous event came\n");
		return 0;
	}
	return ibv_get_async_event(context, event) == 0;
}

/* Takes what earlier cases left on the device that all ids share. */
static void drain_async(struct ibv_context *context)
{
	struct ibv_async_event event;

	while (readable(context->async_fd, 20) && ibv_get_async_event(context, &event) == 0)
		ibv_ack_async_event(&event);
}

static void shared_receives(void)
{
	struct pair p;
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct ibv_async_event event;
	struct ibv_wc wc;

	pair_up(&p, (struct wishes){.srq = 32});
	drain_async(p.b.id->verbs);

	begin_case("receives from a shared queue");
	for (int i = 0; i < 8; i++)
		EQUAL(post_recv(&p.b, i, i * 64, 64), 0);
	for (int i = 0; i < 3; i++) {
		fill(p.a.buffer, 64, i);
		EQUAL(post(&p.a, i, IBV_WR_SEND, SIGNALED, 0, 64, NULL, 0), 0);
		COMPLETES(p.a.send_cq, i, IBV_WC_SUCCESS, IBV_WC_SEND);
		EQUAL(reap(p.b.recv_cq, &wc), 1);
		EQUAL(wc.wr_id, i);
		EQUAL(wc.qp_num, p.b.qp->qp_num);
		CHECK(holds(p.b.buffer + i * 64, 64, i));
	}

	begin_case("the limit event comes once");
	EQUAL(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
	EQUAL(post(&p.a, 3, IBV_WR_SEND, SIGNALED, 0, 64, NULL, 0), 0);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	CHECK(!readable(p.b.id->verbs->async_fd, 30));
	EQUAL(post(&p.a, 4, IBV_WR_SEND, SIGNALED, 0, 64, NULL, 0), 0);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	NEED(next_async(p.b.id->verbs, &event));
	EQUAL(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == p.b.srq);
	ibv_ack_async_event(&event);
	EQUAL(post(&p.a, 5, IBV_WR_SEND, SIGNALED, 0, 64, NULL, 0), 0);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	CHECK(!readable(p.b.id->verbs->async_fd, 30));
	EQUAL(ibv_query_srq(p.b.srq, &attr), 0);
	EQUAL(attr.srq_limit, 0);
	end_case();
	for (int i = 0; i < 3; i++)
		reap(p.a.send_cq, &wc);
	pair_down(&p);
}

static void flushing(void)
{
	struct pair p;

	begin_case("a disconnect flushes both sides");
	pair_up(&p, (struct wishes){});
	for (int i = 0; i < 4; i++) {
		EQUAL(post_recv(&p.a, 10 + i, 0, 64), 0);
		EQUAL(post_recv(&p.b, 20 + i, 0, 64), 0);
	}
	EQUAL(rdma_disconnect(p.a.id), 0);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	for (int i = 0; i < 4; i++) {
		COMPLETES(p.a.recv_cq, 10 + i, IBV_WC_WR_FLUSH_ERR, 0);
		COMPLETES(p.b.recv_cq, 20 + i, IBV_WC_WR_FLUSH_ERR, 0);
	}

	begin_case("what is posted afterwards is flushed");
	EQUAL(post_recv(&p.a, 30, 0, 64), 0);
	COMPLETES(p.a.recv_cq, 30, IBV_WC_WR_FLUSH_ERR, 0);
	EQUAL(post(&p.a, 31, IBV_WR_SEND, 0, 0, 64, NULL, 0), 0);
	COMPLETES(p.a.send_cq, 31, IBV_WC_WR_FLUSH_ERR, 0);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	EQUAL(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init), 0);
	EQUAL(attr.qp_state, IBV_QPS_ERR);
	end_case();
	pair_down(&p);

	begin_case("a queue pair destroyed takes its completions along");
	pair_up(&p, (struct wishes){});
	EQUAL(post_recv(&p.b, 1, 0, 64), 0);
	EQUAL(post(&p.a, 2, IBV_WR_SEND, SIGNALED, 0, 64, NULL, 0), 0);
	CHECK(readable(p.channel->fd, 0) == 0);
	usleep(20000);
	rdma_destroy_qp(p.a.id);
	CHECK(quiet(p.a.send_cq, 20));
	end_case();
	pair_down(&p);

	begin_case("ERR by hand flushes, and the peer is disconnected");
	pair_up(&p, (struct wishes){});
	attr.qp_state = IBV_QPS_ERR;
	EQUAL(post_recv(&p.a, 5, 0, 64), 0);
	EQUAL(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	COMPLETES(p.a.recv_cq, 5, IBV_WC_WR_FLUSH_ERR, 0);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	end_case();
	pair_down(&p);
}

static void short_receive(void)
{
	struct pair p;
	struct ibv_wc wc;

	begin_case("a message longer than its receive");
	pair_up(&p, (struct wishes){});
	EQUAL(post_recv(&p.b, 1, 0, 63), 0);
	EQUAL(post(&p.a, 2, IBV_WR_SEND, 0, 0, 64, NULL, 0), 0);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	EQUAL(wc.status, IBV_WC_LOC_LEN_ERR);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	end_case();
	pair_down(&p);

	begin_case("a message that no receive waits for");
	pair_up(&p, (struct wishes){});
	EQUAL(post(&p.a, 2, IBV_WR_SEND, 0, 0, 64, NULL, 0), 0);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	end_case();
	pair_down(&p);
}

static struct ibv_cq *given_up;
static volatile int done;

static void *destroy_it(void *unused)
{
	(void)unused;
	EQUAL(ibv_destroy_cq(given_up), 0);
	done = 1;
	return NULL;
}

static void asynchronous(void)
{
	struct pair p;
	struct ibv_context *context;
	struct ibv_async_event event;
	struct ibv_wc wc;
	pthread_t thread;

	begin_case("a queue that overflows");
	pair_up(&p, (struct wishes){.cqe = 2});
	context = p.a.id->verbs;
	drain_async(context);
	int room = p.a.send_cq->cqe;
	for (int i = 0; i <= room; i++)
		EQUAL(post(&p.a, i, IBV_WR_RDMA_WRITE, SIGNALED, 0, 8, &p.b, 0), 0);
	NEED(next_async(context, &event));
	EQUAL(event.event_type, IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == p.a.send_cq);
	while (ibv_poll_cq(p.a.send_cq, 1, &wc) > 0)
		;
	CHECK(ibv_poll_cq(p.a.send_cq, 1, &wc) < 0);

	begin_case("destroying a queue waits for its asynchronous events");
	rdma_destroy_qp(p.a.id);
	given_up = p.a.send_cq;
	NEED(p.a.send_cq = ibv_create_cq(context, 1, NULL, p.a.channel, 0));
	NEED(pthread_create(&thread, NULL, destroy_it, NULL) == 0);
	usleep(50000);
	CHECK(!done);
	ibv_ack_async_event(&event);
	pthread_join(thread, NULL);
	CHECK(done);
	end_case();
	pair_down(&p);

	begin_case("an access that was refused is an event to the responder");
	pair_up(&p, (struct wishes){});
	drain_async(p.b.id->verbs);
	struct ibv_sge sge = sge_of(&p.a, 0, 8);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {(uintptr_t)p.b.buffer, p.b.mr->rkey ^ 0x100}},
			   *bad;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	int seen = 0;
	for (int i = 0; i < 4 && !seen && next_async(p.b.id->verbs, &event); i++) {
		seen = event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == p.b.qp;
		ibv_ack_async_event(&event);
	}
	CHECK(seen);
	end_case();
	pair_down(&p);
	drain_async(context);

	begin_case("asynchronous events of a destroyed queue are gone");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr limit = {.srq_limit = 2};
	NEED(srq);
	/* Fewer receives than the limit are posted already, so the event is due at once. */
	EQUAL(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	CHECK(readable(context->async_fd, PATIENCE));
	EQUAL(ibv_destroy_srq(srq), 0);
	CHECK(!readable(context->async_fd, 20));
	EQUAL(ibv_dealloc_pd(pd), 0);

	begin_case("a domain with a shared receive queue is in use");
	NEED(pd = ibv_alloc_pd(context));
	NEED(srq = ibv_create_srq(pd, &init));
	EQUAL(ibv_dealloc_pd(pd), EBUSY);
	EQUAL(ibv_destroy_srq(srq), 0);
	EQUAL(ibv_dealloc_pd(pd), 0);

	begin_case("a non-blocking asynchronous descriptor");
	int flags = fcntl(context->async_fd, F_GETFL);
	NEED(fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);
	MINUS_ONE(ibv_get_async_event(context, &event), EAGAIN);
	NEED(fcntl(context->async_fd, F_SETFL, flags) == 0);
}

int main(void)
{
	shared_receives();
	flushing();
	short_receive();
	asynchronous();
	end_program();
}
