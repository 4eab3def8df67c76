/* Listening: ports, backlog, requests that are refused. */
#include "env.h"

CASE("listen.unbound-takes-a-port")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	EQ(rdma_listen(id, 1), 0);
	CHECK(rdma_get_src_port(id) != 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("listen.twice-is-refused-or-changes-the-backlog")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = listen_on(channel, AF_INET, 1);
	int result = rdma_listen(id, 5);

	CHECK(result == 0 || errno == EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("listen.connecting-a-listener-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = listen_on(channel, AF_INET, 1);
	struct rdma_conn_param param = {};

	EQ(rdma_connect(id, &param), -1);
	EQ(errno, EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

static void rejected(long length)
{
	need_cm();
	struct pair p;
	uint8_t data[256];
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	half(&p);
	fill(data, sizeof(data), 3);
	NEED(post_recv(&p.a, 77, 0, 64) == 0);
	NEED(rdma_connect(p.a.id, &param) == 0);
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	errno = 0;
	if (rdma_reject(p.b.id, length ? data : NULL, (uint8_t)length) != 0) {
		/* The InfiniBand manager has 148 octets for it. */
		CHECKF(!env.weft && !env.iwarp && length > 148, "errno %d (%s)", errno, strerror(errno));
		return;
	}
	struct rdma_cm_event *event = expect(p.events, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == p.a.id);
	CHECK(event->status != 0);
	if (length) {
		CHECK(event->param.conn.private_data_len >= length);
		if (event->param.conn.private_data_len >= length)
			SAME(event->param.conn.private_data, data, (size_t)length);
	}
	if (env.weft)
		EQ(event->param.conn.private_data_len, length);
	NEED(rdma_ack_cm_event(event) == 0);
	CHECK(state_of(p.a.qp) != IBV_QPS_RTS);
	COMPLETES(p.a.rcq, 77, IBV_WC_WR_FLUSH_ERR);
	EQ(rdma_destroy_id(p.b.id), 0);
	p.b.id = NULL;
	pair_down(&p);
}

CASES
{
	ADD(rejected, 0, "reject.without-data");
	ADD(rejected, 1, "reject.with-1-octet");
	ADD(rejected, 100, "reject.with-100-octets");
	ADD(rejected, 148, "reject.with-148-octets");
	ADD(rejected, 255, "reject.with-255-octets");
}

CASE("reject.by-destroying-the-request")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	half(&p);
	NEED(rdma_connect(p.a.id, &param) == 0);
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(rdma_destroy_id(p.b.id), 0);
	p.b.id = NULL;
	refused_by(p.events);
	pair_down(&p);
}

CASE("backlog.as-many-requests-wait")
{
	enum { MANY = 6 };
	need_cm();
	struct rdma_event_channel *active = rdma_create_event_channel(), *passive = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(passive, AF_INET, MANY), *ids[MANY], *requests[MANY];
	struct wish w = {};
	struct side sides[MANY] = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	for (int i = 0; i < MANY; i++) {
		ids[i] = sides[i].id = towards(active, listener);
		side_objects(&sides[i], &w, false);
		struct ibv_qp_init_attr init = init_of(&sides[i], &w);
		NEED(rdma_create_qp(ids[i], sides[i].pd, &init) == 0);
		NEED(rdma_connect(ids[i], &param) == 0);
	}
	for (int i = 0; i < MANY; i++) {
		requests[i] = expected(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
		for (int j = 0; j < i; j++)
			CHECK(requests[i] != requests[j]);
	}
	for (int i = 0; i < MANY; i++)
		EQ(rdma_reject(requests[i], NULL, 0), 0);
	for (int i = 0; i < MANY; i++)
		expected(active, RDMA_CM_EVENT_REJECTED);
}

CASE("backlog.those-beyond-it-wait")
{
	enum { MANY = 8 };
	need_cm();
	struct rdma_event_channel *active = rdma_create_event_channel(), *passive = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(passive, AF_INET, 1), *ids[MANY];
	struct wish w = {};
	struct side sides[MANY] = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	for (int i = 0; i < MANY; i++) {
		ids[i] = sides[i].id = towards(active, listener);
		side_objects(&sides[i], &w, false);
		struct ibv_qp_init_attr init = init_of(&sides[i], &w);
		NEED(rdma_create_qp(ids[i], sides[i].pd, &init) == 0);
		NEED(rdma_connect(ids[i], &param) == 0);
	}
	/* Whoever was not taken would have been rejected without a request. */
	for (int i = 0; i < MANY; i++)
		EQ(rdma_reject(expected(passive, RDMA_CM_EVENT_CONNECT_REQUEST), NULL, 0), 0);
	for (int i = 0; i < MANY; i++)
		expected(active, RDMA_CM_EVENT_REJECTED);
}

CASE("backlog.all-of-it-is-accepted-and-ended-by-either-side")
{
	enum { MANY = 12 };
	need_cm();
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(events, AF_INET, MANY), *a[MANY], *b[MANY];
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	for (int i = 0; i < MANY; i++) {
		a[i] = towards(events, listener);
		NEED(rdma_create_qp(a[i], NULL, &init) == 0);
	}
	for (int i = 0; i < MANY; i++)
		EQ(rdma_connect(a[i], &param), 0);
	for (int i = 0; i < MANY; i++)
		b[i] = expected(events, RDMA_CM_EVENT_CONNECT_REQUEST);
	for (int i = 0; i < MANY; i++) {
		NEED(rdma_create_qp(b[i], NULL, &init) == 0);
		EQ(rdma_accept(b[i], &param), 0);
	}
	for (int i = 0; i < 2 * MANY; i++)
		expected(events, RDMA_CM_EVENT_ESTABLISHED);
	/* Requests come in any order: the ports say who belongs together. */
	for (int i = 0; i < MANY; i++) {
		int peer = 0;
		while (peer < MANY && rdma_get_dst_port(b[peer]) != rdma_get_src_port(a[i]))
			peer++;
		NEED(peer < MANY);
		EQ(rdma_disconnect(i % 2 ? a[i] : b[peer]), 0);
	}
	for (int i = 0; i < 2 * MANY; i++)
		expected(events, RDMA_CM_EVENT_DISCONNECTED);
	for (int i = 0; i < 2 * MANY; i++) {
		struct rdma_cm_id *id = i < MANY ? a[i] : b[i - MANY];
		rdma_destroy_qp(id);
		EQ(rdma_destroy_id(id), 0);
	}
	EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(events);
}

CASE("listener.destroyed-takes-requests-along-that-nobody-saw")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *event;

	half(&p);
	NEED(rdma_connect(p.a.id, &param) == 0);
	sleep_ms(50);
	EQ(rdma_destroy_id(p.listener), 0);
	p.listener = NULL;
	NEED(comes(p.events->fd));
	NEED(rdma_get_cm_event(p.events, &event) == 0);
	CHECK(event->id == p.a.id && event->event != RDMA_CM_EVENT_ESTABLISHED);
	NEED(rdma_ack_cm_event(event) == 0);
	pair_down(&p);
}

CASE("listener.destroyed-leaves-its-connections")
{
	need_cm();
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(rdma_destroy_id(p.listener), 0);
	p.listener = NULL;
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}
