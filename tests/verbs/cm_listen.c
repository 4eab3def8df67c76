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
	NEED(rdma_connect(p.a.id, &param) == 0);
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(rdma_reject(p.b.id, length ? data : NULL, (uint8_t)length), 0);
	struct rdma_cm_event *event = expect(p.events, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == p.a.id);
	CHECK(event->status != 0);
	if (length) {
		CHECK(event->param.conn.private_data_len >= length);
		if (event->param.conn.private_data_len >= length)
			SAME(event->param.conn.private_data, data, (size_t)length);
	}
	NEED(rdma_ack_cm_event(event) == 0);
	CHECK(state_of(p.a.qp) != IBV_QPS_RTS);
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
