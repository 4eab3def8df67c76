/* Processes that fork: what is the parent's stays the parent's, and peers notice its end. What a child makes of its own
   is looked at in tests/verbs/fork.c. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "pair.h"

static struct pair p;

static void ended_well(pid_t child)
{
	int status = -1;

	NEED(waitpid(child, &status, 0) == child);
	EQUAL(status, 0);
}

static void messages(int count)
{
	for (int i = 0; i < count; i++) {
		fill(p.a.buffer, 1000, i);
		EQUAL(post_recv(&p.b, i, 0, 1000), 0);
		EQUAL(post(&p.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 1000, NULL, 0), 0);
		COMPLETES(p.a.send_cq, i, IBV_WC_SUCCESS, IBV_WC_SEND);
		COMPLETES(p.b.recv_cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(holds(p.b.buffer, 1000, i));
	}
}

/* Every kind of call on every kind of object. */
static void use_what_is_the_parents(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_poll_cq(p.a.send_cq, 1, &wc) < 0);
	EQUAL(post(&p.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0), EACCES);
	EQUAL(post_recv(&p.b, 1, 0, 64), EACCES);
	EQUAL(ibv_req_notify_cq(p.a.send_cq, 0), EACCES);
	MINUS_ONE(ibv_get_cq_event(p.a.channel, &cq, &context), EACCES);
	MINUS_ONE(rdma_get_cm_event(p.channel, &event), EACCES);
	MINUS_ONE(rdma_create_id(p.channel, &id, NULL, RDMA_PS_TCP), EACCES);
	IS_NULL(ibv_reg_mr(p.a.pd, p.a.buffer, 64, IBV_ACCESS_LOCAL_WRITE), EACCES);
	IS_NULL(ibv_alloc_pd(p.a.id->verbs), EACCES);
	EQUAL(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EACCES);
	MINUS_ONE(rdma_disconnect(p.a.id), EACCES);
	MINUS_ONE(rdma_destroy_id(p.listener), EACCES);
	EQUAL(ibv_destroy_qp(p.b.qp), EACCES);
	EQUAL(ibv_destroy_cq(p.b.recv_cq), EACCES);
	EQUAL(ibv_dereg_mr(p.a.mr), EACCES);
	EQUAL(ibv_dealloc_pd(p.a.pd), EACCES);
	EQUAL(ibv_destroy_comp_channel(p.a.channel), EACCES);
	EQUAL(ibv_close_device(p.a.id->verbs), EACCES);
	rdma_destroy_event_channel(p.channel);
}

static void refused(void)
{
	begin_case("a child is refused what is its parent's, also beside a device of its own");
	pair_up(&p, (struct wishes){});
	messages(3);
	pid_t child = fork();
	if (child == 0) {
		case_bad = 0;
		use_what_is_the_parents();
		struct ibv_device **list = ibv_get_device_list(NULL);
		struct ibv_context *own = list ? ibv_open_device(list[0]) : NULL;
		struct ibv_pd *pd = own ? ibv_alloc_pd(own) : NULL;
		CHECK(pd && ibv_reg_mr(pd, p.a.buffer, 64, IBV_ACCESS_LOCAL_WRITE));
		use_what_is_the_parents();
		/* Objects of both do not go together. */
		struct ibv_qp_init_attr init = {
			.send_cq = p.a.send_cq, .recv_cq = p.a.recv_cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
		IS_NULL(ibv_create_qp(pd, &init), EACCES);
		/* Not _exit: what a library does at exit must not disturb the parent's connections. */
		exit(case_bad);
	}
	ended_well(child);

	begin_case("the parent goes on");
	messages(100);
	end_case();
	pair_down(&p);
}

/* What was posted just before a fork may wait for more of its kind: it is the parent's to send, whatever the child
   calls. */
static void amid_posts(void)
{
	enum { CHILDREN = 20, BURST = 30 };
	struct ibv_wc wc;

	begin_case("a child that polls sends nothing of its parent's");
	pair_up(&p, (struct wishes){});
	for (int round = 0; round < CHILDREN; round++) {
		fill(p.a.buffer, BURST * 64, round);
		for (int i = 0; i < BURST; i++)
			NEED(post_recv(&p.b, i, i * 64, 64) == 0);
		for (int i = 0; i < BURST; i++)
			NEED(post(&p.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, i * 64, 64, NULL, 0) == 0);
		pid_t child = fork();
		if (child == 0) {
			for (int i = 0; i < 10; i++)
				if (ibv_poll_cq(p.a.send_cq, 1, &wc) >= 0 || ibv_poll_cq(p.b.recv_cq, 1, &wc) >= 0)
					_exit(1);
			_exit(0);
		}
		ended_well(child);
		for (int i = 0; i < BURST; i++) {
			COMPLETES(p.a.send_cq, i, IBV_WC_SUCCESS, IBV_WC_SEND);
			COMPLETES(p.b.recv_cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
		}
		if (!CHECK(holds(p.b.buffer, BURST * 64, round)))
			break;
	}
	end_case();
	pair_down(&p);
}

/* A handler of a signal that forks comes back in the child too, in the middle of a wait of its parent's. */
static volatile pid_t forked_in_handler;
static pthread_t waiter;

static void fork_in_handler(int signal)
{
	(void)signal;
	forked_in_handler = fork();
}

static void *interrupt(void *unused)
{
	int status = -1;

	(void)unused;
	/* By then the wait is under way; if not, its first look is the child's. */
	usleep(50000);
	NEED(pthread_kill(waiter, SIGUSR1) == 0);
	while (!forked_in_handler)
		usleep(1000);
	NEED(waitpid(forked_in_handler, &status, 0) == forked_in_handler);
	EQUAL(status, 0);
	EQUAL(rdma_disconnect(p.a.id), 0);
	return NULL;
}

static void in_a_handler(void)
{
	struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
	struct rdma_cm_event *event;
	pid_t self = getpid();
	pthread_t thread;

	begin_case("a child that finds itself in a wait of its parent's is refused it");
	pair_up(&p, (struct wishes){});
	waiter = pthread_self();
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	NEED(pthread_create(&thread, NULL, interrupt, NULL) == 0);
	errno = 0;
	int got = rdma_get_cm_event(p.channel, &event);
	if (getpid() != self)
		_exit(got != -1 || errno != EACCES);
	EQUAL(got, 0);
	EQUAL(event->event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(event);
	pthread_join(thread, NULL);
	expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	end_case();
	pair_down(&p);
}

/* The peer of a process that ends while a child of it lives. */
static void an_end_is_noticed(void)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct side own = {};
	pid_t grandchild = 0;
	int told[2];

	begin_case("a peer notices the end of a process whose child lives on");
	NEED(pipe(told) == 0);
	NEED(channel = rdma_create_event_channel());
	listener = listen_on(channel, AF_INET, 8);
	pid_t child = fork();
	if (child == 0) {
		struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
		struct rdma_event_channel *mine = rdma_create_event_channel();
		NEED(mine);
		NEED((own.id = towards(mine, listener)));
		side_queues(&own, &(struct wishes){}, 0);
		NEED(rdma_connect(own.id, &param) == 0);
		expect_ack(mine, RDMA_CM_EVENT_ESTABLISHED);
		pid_t next = fork();
		if (next == 0)
			for (;;)
				pause();
		NEED(write(told[1], &next, sizeof(next)) == sizeof(next));
		for (;;)
			pause();
	}
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	own.id = expect_ack(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	side_queues(&own, &(struct wishes){}, 1);
	NEED(rdma_accept(own.id, &param) == 0);
	expect_ack(channel, RDMA_CM_EVENT_ESTABLISHED);
	NEED(read(told[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild));
	NEED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	if (CHECK(readable(channel->fd, PATIENCE)))
		expect_ack(channel, RDMA_CM_EVENT_DISCONNECTED);
	EQUAL(kill(grandchild, SIGKILL), 0);
	end_case();
	side_down(&own);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	refused();
	amid_posts();
	in_a_handler();
	an_end_is_noticed();
	end_program();
}
