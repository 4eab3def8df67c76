/* Connecting through the connection manager: requests, private data, negotiated limits. */
#include "env.h"

CASE("connect.before-the-route-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_conn_param param = {};

	FAILS(rdma_connect(id, &param), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("connect.events-name-their-ids")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 2, .initiator_depth = 3};

	half(&p);
	NEED(rdma_connect(p.a.id, &param) == 0);
	struct rdma_cm_event *event = expect(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == p.listener);
	CHECK(event->id != p.a.id && event->id != p.listener);
	EQ(event->status, 0);
	CHECK(event->id->verbs && event->id->pd && event->id->channel == p.events);
	EQ(event->id->port_num, PORT);
	EQ(rdma_get_src_port(event->id), rdma_get_src_port(p.listener));
	p.b.id = event->id;
	NEED(rdma_ack_cm_event(event) == 0);
	passive_qp(&p);
	NEED(rdma_accept(p.b.id, &param) == 0);
	for (int i = 0; i < 2; i++) {
		event = expect(p.events, RDMA_CM_EVENT_ESTABLISHED);
		CHECK(event->id == p.a.id || event->id == p.b.id);
		EQ(event->status, 0);
		CHECK(event->listen_id == NULL);
		NEED(rdma_ack_cm_event(event) == 0);
	}
	EQ(rdma_get_dst_port(p.b.id), rdma_get_src_port(p.a.id));
	EQ(rdma_get_dst_port(p.a.id), rdma_get_src_port(p.b.id));
	pair_down(&p);
}

/* Private data of an event. The field may be longer than what was sent, filled up with zeros; Weft's is not. */
static void carries(const struct rdma_conn_param *param, const uint8_t *data, long length)
{
	CHECK(param->private_data_len >= length);
	if (env.weft) {
		EQ(param->private_data_len, length);
		CHECK(length || !param->private_data);
	}
	if (length && param->private_data_len >= length)
		SAME(param->private_data, data, (size_t)length);
}

static void private_data(long length)
{
	need_cm();
	struct pair p;
	uint8_t data[256];
	struct rdma_conn_param param = {.private_data = data, .private_data_len = (uint8_t)length,
					.responder_resources = 1, .initiator_depth = 1};

	half(&p);
	fill(data, sizeof(data), 1);
	errno = 0;
	if (rdma_connect(p.a.id, &param) != 0) {
		/* The InfiniBand manager has 56 octets for it, iWARP 512: more than a length octet says. */
		CHECKF(!env.iwarp && length > 56, "errno %d (%s)", errno, strerror(errno));
		return;
	}
	struct rdma_cm_event *event = expect(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	carries(&event->param.conn, data, length);
	p.b.id = event->id;
	NEED(rdma_ack_cm_event(event) == 0);
	passive_qp(&p);
	fill(data, sizeof(data), 2);
	NEED(rdma_accept(p.b.id, &param) == 0);
	bool seen = false;
	for (int i = 0; i < 2; i++) {
		event = expect(p.events, RDMA_CM_EVENT_ESTABLISHED);
		if (event->id == p.a.id) {
			seen = true;
			carries(&event->param.conn, data, length);
		}
		NEED(rdma_ack_cm_event(event) == 0);
	}
	CHECK(seen);
	pair_down(&p);
}

CASES
{
	static const int sizes[] = {0, 1, 2, 3, 4, 5, 31, 55, 56, 57, 64, 128, 195, 196, 197, 200, 254, 255};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		ADD(private_data, sizes[i], "connect.private-data-of-%d", sizes[i]);
}

CASE("connect.nobody-listens")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	int keeper;

	for (;;) {
		half(&p);
		int port = rdma_get_src_port(p.listener);
		EQ(rdma_destroy_id(p.listener), 0);
		p.listener = NULL;
		if ((keeper = keep_port(port)) >= 0)
			break;
		pair_down(&p);
	}
	NEED(rdma_connect(p.a.id, &param) == 0);
	int status = refused_by(p.events);
	CHECK(env.weft ? status < 0 : status != 0);
	pair_down(&p);
	EQ(close(keeper), 0);
}

CASE("connect.ird-and-ord-are-negotiated")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param mine = {.responder_resources = 2, .initiator_depth = 3}, theirs = {};

	half(&p);
	NEED(rdma_connect(p.a.id, &mine) == 0);
	struct rdma_cm_event *event = expect(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	/* Told from the receiver's side: what it may start, and what it should hold. */
	if (event->param.conn.responder_resources || event->param.conn.initiator_depth) {
		CHECK(event->param.conn.initiator_depth <= 2);
		CHECK(event->param.conn.responder_resources >= 3);
	}
	if (env.weft) {
		EQ(event->param.conn.initiator_depth, 2);
		EQ(event->param.conn.responder_resources, 3);
	}
	p.b.id = event->id;
	NEED(rdma_ack_cm_event(event) == 0);
	passive_qp(&p);
	theirs.responder_resources = 3;
	theirs.initiator_depth = 2;
	NEED(rdma_accept(p.b.id, &theirs) == 0);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	fill(p.b.buf, 5000, 1);
	for (uint64_t i = 0; i < 10; i++)
		NEED(post(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 5000, &p.b, 0) == 0);
	for (uint64_t i = 0; i < 10; i++)
		WORKS(p.a.scq, i);
	pair_down(&p);
}

CASE("connect.more-reads-than-the-device-has-are-cut-or-refused")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 255, .initiator_depth = 255};

	half(&p);
	if (rdma_connect(p.a.id, &param) != 0) {
		EQ(errno, EINVAL);
		return;
	}
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive_qp(&p);
	if (rdma_accept(p.b.id, &param) != 0) {
		EQ(errno, EINVAL);
		return;
	}
	/* Cut to what works. */
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	fill(p.b.buf, 50 * 1000, 4);
	for (uint64_t i = 0; i < 50; i++)
		NEED(post(&p.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, i * 1000, 1000, &p.b, i * 1000) == 0);
	for (uint64_t i = 0; i < 50; i++)
		WORKS(p.a.scq, i);
	CHECK(holds(p.a.buf, 50 * 1000, 4));
	pair_down(&p);
}

CASE("connect.twice-is-refused")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	half(&p);
	NEED(rdma_connect(p.a.id, &param) == 0);
	FAILS(rdma_connect(p.a.id, &param), EINVAL);
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
}

CASE("accept.twice-is-refused")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	pair_up(&p, (struct wish){});
	FAILS(rdma_accept(p.b.id, &param), EINVAL);
	pair_down(&p);
}

CASE("accept.of-an-id-that-was-not-asked-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_conn_param param = {};

	FAILS(rdma_accept(id, &param), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("connect.data-may-follow-established-at-once-both-ways")
{
	need_cm();
	for (int round = 0; round < 20; round++) {
		struct pair p;
		struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
		half(&p);
		NEED(post_recv(&p.a, 1, 0, 64) == 0);
		NEED(rdma_connect(p.a.id, &param) == 0);
		p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
		passive_qp(&p);
		NEED(post_recv(&p.b, 2, 0, 64) == 0);
		NEED(rdma_accept(p.b.id, &param) == 0);
		for (int i = 0; i < 2; i++) {
			struct rdma_cm_id *id = expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
			NEED(send_of(id == p.a.id ? &p.a : &p.b, 9, IBV_SEND_SIGNALED, 128, 8) == 0);
		}
		WORKS(p.a.rcq, 1);
		WORKS(p.b.rcq, 2);
		pair_down(&p);
	}
}

static void connected_over(long family)
{
	need_cm();
	if (family == AF_INET6)
		need_v6();
	struct pair p;

	pair_up(&p, (struct wish){.family = (int)family});
	EQ(rdma_get_local_addr(p.a.id)->sa_family, family);
	EQ(rdma_get_peer_addr(p.a.id)->sa_family, family);
	EQ(rdma_get_dst_port(p.a.id), rdma_get_src_port(p.listener));
	EQ(rdma_get_dst_port(p.b.id), rdma_get_src_port(p.a.id));
	CHECK(p.a.qp->qp_num != p.b.qp->qp_num);
	fill(p.a.buf, 100, 5);
	NEED(post_recv(&p.b, 1, 0, 100) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 100) == 0);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 100, 5));
	pair_down(&p);
}

CASES
{
	ADD(connected_over, AF_INET, "connect.v4");
	ADD(connected_over, AF_INET6, "connect.v6");
}

/* As servers do it: the channel never blocks, and poll(2) says when there is something. */
CASE("connect.driven-by-poll-alone")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	int established = 0;

	half(&p);
	NEED(fcntl(p.events->fd, F_SETFL, O_NONBLOCK) == 0);
	NEED(rdma_connect(p.a.id, &param) == 0);
	while (established < 2) {
		struct rdma_cm_event *event;
		NEED(comes(p.events->fd));
		if (rdma_get_cm_event(p.events, &event) != 0)
			continue;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			p.b.id = event->id;
			passive_qp(&p);
			EQ(rdma_accept(p.b.id, &param), 0);
		} else {
			EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
			established++;
		}
		EQ(rdma_ack_cm_event(event), 0);
	}
	pair_down(&p);
}

CASE("connect.ten-one-after-another-on-one-port")
{
	need_cm();
	for (int i = 0; i < 10; i++) {
		struct pair p;
		pair_up(&p, (struct wish){});
		NEED(post_recv(&p.b, 1, 0, 64) == 0);
		NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
		WORKS(p.b.rcq, 1);
		pair_down(&p);
	}
}

CASE("connect.an-id-is-used-once")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	pair_up(&p, (struct wish){});
	EQ(rdma_disconnect(p.a.id), 0);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	FAILS(rdma_connect(p.a.id, &param), EINVAL);
	pair_down(&p);
}
