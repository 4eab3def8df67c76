/* Processes that fork: what is the parent's stays the parent's, and peers notice its end. What a child makes of its own
   is looked at in tests/verbs/fork.c. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "edge.h"

static struct pair p;

/* What a child hears when it uses its parent's objects, once. */
static const char told[] = "^weft: warn: process [0-9]* uses verbs objects of the process that it was forked from";

static void ended_well(pid_t child)
{
	int status = -1;

	NEED(waitpid(child, &status, 0) == child);
	EQ(status, 0);
}

static void messages(int count)
{
	for (int i = 0; i < count; i++) {
		fill(p.a.buf, 1000, i);
		EQ(post_recv(&p.b, i, 0, 1000), 0);
		EQ(post(&p.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 1000, NULL, 0), 0);
		WORKS(p.a.scq, i);
		WORKS(p.b.rcq, i);
		CHECK(holds(p.b.buf, 1000, i));
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

	CHECK(ibv_poll_cq(p.a.scq, 1, &wc) < 0);
	EQ(post(&p.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, NULL, 0), EACCES);
	EQ(post_recv(&p.b, 1, 0, 64), EACCES);
	EQ(ibv_req_notify_cq(p.a.scq, 0), EACCES);
	FAILS(ibv_get_cq_event(p.a.channel, &cq, &context), EACCES);
	FAILS(rdma_get_cm_event(p.events, &event), EACCES);
	FAILS(rdma_create_id(p.events, &id, NULL, RDMA_PS_TCP), EACCES);
	NONE(ibv_reg_mr(p.a.pd, p.a.buf, 64, IBV_ACCESS_LOCAL_WRITE), EACCES);
	NONE(ibv_alloc_pd(p.a.id->verbs), EACCES);
	EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EACCES);
	FAILS(rdma_disconnect(p.a.id), EACCES);
	FAILS(rdma_destroy_id(p.listener), EACCES);
	EQ(ibv_destroy_qp(p.b.qp), EACCES);
	EQ(ibv_destroy_cq(p.b.rcq), EACCES);
	EQ(ibv_dereg_mr(p.a.mr), EACCES);
	EQ(ibv_dealloc_pd(p.a.pd), EACCES);
	EQ(ibv_destroy_comp_channel(p.a.channel), EACCES);
	EQ(ibv_close_device(p.a.id->verbs), EACCES);
	rdma_destroy_event_channel(p.events);
}

CASE("forked.a-child-is-refused-what-is-its-parents-also-beside-a-device-of-its-own")
{
	listen_to_stderr();
	pair_up(&p, (struct wish){});
	messages(3);
	pid_t child = fork();
	if (child == 0) {
		use_what_is_the_parents();
		struct ibv_device **list = ibv_get_device_list(NULL);
		struct ibv_context *own = list ? ibv_open_device(list[0]) : NULL;
		struct ibv_pd *pd = own ? ibv_alloc_pd(own) : NULL;
		CHECK(pd && ibv_reg_mr(pd, p.a.buf, 64, IBV_ACCESS_LOCAL_WRITE));
		use_what_is_the_parents();
		/* Objects of both do not go together. */
		struct ibv_qp_init_attr init = {
			.send_cq = p.a.scq, .recv_cq = p.a.rcq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
		NONE(ibv_create_qp(pd, &init), EACCES);
		/* Not _exit: what a library does at exit must not disturb the parent's connections. */
		case_end();
	}
	ended_well(child);
	EQ(lines_said(told), 1);
	/* The parent goes on. */
	messages(100);
	pair_down(&p);
}

/* What was posted just before a fork may wait for more of its kind: it is the parent's to send, whatever the child
   calls. */
CASE("forked.a-child-that-polls-sends-nothing-of-its-parents")
{
	enum { CHILDREN = 20, BURST = 30 };
	struct ibv_wc wc;

	listen_to_stderr();
	pair_up(&p, (struct wish){});
	for (int round = 0; round < CHILDREN; round++) {
		fill(p.a.buf, BURST * 64, round);
		for (int i = 0; i < BURST; i++)
			NEED(post_recv(&p.b, i, i * 64, 64) == 0);
		for (int i = 0; i < BURST; i++)
			NEED(post(&p.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, i * 64, 64, NULL, 0) == 0);
		pid_t child = fork();
		if (child == 0) {
			for (int i = 0; i < 10; i++)
				if (ibv_poll_cq(p.a.scq, 1, &wc) >= 0 || ibv_poll_cq(p.b.rcq, 1, &wc) >= 0)
					_exit(1);
			_exit(0);
		}
		ended_well(child);
		for (int i = 0; i < BURST; i++) {
			WORKS(p.a.scq, i);
			WORKS(p.b.rcq, i);
		}
		if (!CHECK(holds(p.b.buf, BURST * 64, round)))
			break;
	}
	EQ(lines_said(told), CHILDREN);
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
	sleep_ms(50);
	NEED(pthread_kill(waiter, SIGUSR1) == 0);
	while (!forked_in_handler)
		sleep_ms(1);
	NEED(waitpid(forked_in_handler, &status, 0) == forked_in_handler);
	EQ(status, 0);
	EQ(rdma_disconnect(p.a.id), 0);
	return NULL;
}

CASE("forked.a-child-that-finds-itself-in-a-wait-of-its-parents-is-refused-it")
{
	struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
	struct rdma_cm_event *event;
	pid_t self = getpid();
	pthread_t thread;

	listen_to_stderr();
	pair_up(&p, (struct wish){});
	waiter = pthread_self();
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	NEED(pthread_create(&thread, NULL, interrupt, NULL) == 0);
	errno = 0;
	int got = rdma_get_cm_event(p.events, &event);
	if (getpid() != self)
		_exit(got != -1 || errno != EACCES);
	EQ(got, 0);
	EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(event);
	pthread_join(thread, NULL);
	EQ(lines_said(told), 1);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	pair_down(&p);
}

/* The peer of a process that ends while a child of it lives. */
CASE("forked.a-peer-notices-the-end-of-a-process-whose-child-lives-on")
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	pid_t grandchild = 0;
	int told_by[2];

	p = (struct pair){};
	NEED(pipe(told_by) == 0);
	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 8);
	pid_t child = fork();
	if (child == 0) {
		struct pair own = {.events = rdma_create_event_channel()};
		NEED(own.events);
		own.a.id = towards(own.events, p.listener);
		active_qp(&own);
		NEED(rdma_connect(own.a.id, &param) == 0);
		expected(own.events, RDMA_CM_EVENT_ESTABLISHED);
		pid_t next = fork();
		if (next == 0)
			for (;;)
				pause();
		NEED(write(told_by[1], &next, sizeof(next)) == sizeof(next));
		for (;;)
			pause();
	}
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive_qp(&p);
	NEED(rdma_accept(p.b.id, &param) == 0);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	NEED(read(told_by[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild));
	NEED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	if (CHECK(comes(p.events->fd)))
		expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	EQ(kill(grandchild, SIGKILL), 0);
	pair_down(&p);
}
