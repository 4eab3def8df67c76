/* How connections of the connection manager end. */
#include "env.h"

#include <signal.h>

CASE("disconnect.both-are-told")
{
	need_cm();
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.a, 1, 0, 64) == 0);
	NEED(post_recv(&p.b, 2, 0, 64) == 0);
	EQ(rdma_disconnect(p.a.id), 0);
	struct rdma_cm_id *one = expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	struct rdma_cm_id *two = expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(one != two && (one == p.a.id || two == p.a.id) && (one == p.b.id || two == p.b.id));
	COMPLETES(p.a.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	COMPLETES(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(state_of(p.a.qp), IBV_QPS_ERR);
	EQ(state_of(p.b.qp), IBV_QPS_ERR);
	/* What is posted afterwards is flushed as well. */
	NEED(post_recv(&p.a, 3, 0, 64) == 0);
	COMPLETES(p.a.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	NEED(send_of(&p.a, 4, 0, 0, 64) == 0);
	COMPLETES(p.a.scq, 4, IBV_WC_WR_FLUSH_ERR);
	pair_down(&p);
}

/* Two events, one for each id, in any order. */
static void both_are_told(struct pair *p)
{
	expected(p->events, RDMA_CM_EVENT_DISCONNECTED);
	expected(p->events, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!readable(p->events->fd, QUIET));
}

CASE("disconnect.by-the-passive-side")
{
	need_cm();
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(rdma_disconnect(p.b.id), 0);
	both_are_told(&p);
	pair_down(&p);
}

CASE("disconnect.by-the-error-state")
{
	need_cm();
	struct pair p;

	if (!env.iwarp && !env.weft)
		SKIP("a queue pair of InfiniBand ends without a word to its peer");
	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.a, 5, 0, 64) == 0);
	EQ(to_state(p.a.qp, IBV_QPS_ERR), 0);
	COMPLETES(p.a.rcq, 5, IBV_WC_WR_FLUSH_ERR);
	both_are_told(&p);
	pair_down(&p);
}

CASE("disconnect.by-a-message-longer-than-its-receive")
{
	need_cm();
	need_weft();
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 63) == 0);
	NEED(send_of(&p.a, 2, 0, 0, 64) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	both_are_told(&p);
	pair_down(&p);
}

CASE("disconnect.what-was-sent-before-arrives")
{
	need_cm();
	struct pair p;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, 1 << 20, 3);
	NEED(post_recv(&p.b, 1, 0, 1 << 20) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 1 << 20) == 0);
	WORKS(p.a.scq, 2);
	EQ(rdma_disconnect(p.a.id), 0);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 1 << 20, 3));
	pair_down(&p);
}

CASE("disconnect.what-completed-before-is-received-late")
{
	need_cm();
	enum { MESSAGES = 8 };
	struct pair p;
	struct ibv_wc wc = {};

	pair_up(&p, (struct wish){});
	fill(p.a.buf, MESSAGES * 64, 3);
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 64) == 0);
	if (!reap(p.a.scq, &wc))
		SKIP("a Send is not complete before it has its receive");
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	if (!reap(p.b.rcq, &wc) || wc.status != IBV_WC_SUCCESS)
		SKIP("the device holds no message that finds no receive");
	for (int i = 1; i < MESSAGES; i++) {
		NEED(send_of(&p.a, 1 + i, IBV_SEND_SIGNALED, 64 * i, 64) == 0);
		WORKS(p.a.scq, 1 + i);
	}
	EQ(rdma_disconnect(p.a.id), 0);
	rdma_destroy_qp(p.a.id);
	p.a.qp = NULL;
	for (int i = 1; i < MESSAGES; i++) {
		NEED(post_recv(&p.b, 1 + i, 64 * i, 64) == 0);
		WORKS(p.b.rcq, 1 + i);
	}
	CHECK(holds(p.b.buf, MESSAGES * 64, 3));
	/* And then the end. */
	NEED(post_recv(&p.b, 99, 0, 64) == 0);
	COMPLETES(p.b.rcq, 99, IBV_WC_WR_FLUSH_ERR);
	pair_down(&p);
}

CASE("disconnect.twice")
{
	need_cm();
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(rdma_disconnect(p.a.id), 0);
	int again = rdma_disconnect(p.a.id);
	CHECK(again == 0 || errno == EINVAL || errno == ENOTCONN);
	pair_down(&p);
}

CASE("disconnect.by-both-at-once")
{
	need_cm();
	for (int i = 0; i < 10; i++) {
		struct pair p;
		pair_up(&p, (struct wish){});
		EQ(rdma_disconnect(p.a.id), 0);
		rdma_disconnect(p.b.id);
		expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
		expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
		if (i == 9)
			CHECK(!readable(p.events->fd, QUIET));
		pair_down(&p);
	}
}

CASE("disconnect.unconnected-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	EQ(rdma_disconnect(id), -1);
	CHECK(errno == EINVAL || errno == ENOTCONN);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("disconnect.by-destroying-the-id-tells-the-other")
{
	need_cm();
	struct pair p;

	pair_up(&p, (struct wish){});
	rdma_destroy_qp(p.a.id);
	EQ(rdma_destroy_id(p.a.id), 0);
	p.a.id = NULL;
	p.a.qp = NULL;
	CHECK(expected(p.events, RDMA_CM_EVENT_DISCONNECTED) == p.b.id);
	pair_down(&p);
}

CASE("disconnect.by-destroying-the-queue-pair-tells-the-other")
{
	need_cm();
	need_weft();
	struct pair p;

	pair_up(&p, (struct wish){});
	rdma_destroy_qp(p.a.id);
	p.a.qp = NULL;
	CHECK(p.a.id->qp == NULL);
	struct rdma_cm_id *id = expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	if (id == p.a.id)
		id = expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(id == p.b.id);
	pair_down(&p);
}

/* rdma_destroy_id(3) asks for the queue pair to go first; programs forget it. */
CASE("disconnect.by-destroying-the-id-before-its-queue-pair")
{
	need_cm();
	need_weft();
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(rdma_destroy_id(p.a.id), 0);
	p.a.id = NULL;
	CHECK(expected(p.events, RDMA_CM_EVENT_DISCONNECTED) == p.b.id);
	pair_down(&p);
}

CASE("disconnect.the-other-process-dies")
{
	need_cm();
	/* Another program connects to us and is killed. */
	struct pair p = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 1);
	char port[16];
	snprintf(port, sizeof(port), "%d", rdma_get_src_port(p.listener));
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "verbs-conformance", "-a", env.address, "--peer", port, NULL);
		_exit(127);
	}
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive_qp(&p);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(rdma_accept(p.b.id, &param) == 0);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	kill(child, SIGKILL);
	COMPLETES(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	CHECK(expected(p.events, RDMA_CM_EVENT_DISCONNECTED) == p.b.id);
	pair_down(&p);
}
