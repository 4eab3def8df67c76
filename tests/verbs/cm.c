/* The connection manager: ids, addresses, events, private data, refusals, ends. */
#include <signal.h>

#include "env.h"

/* --- ids and channels */

CASE("id.fields")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	NEED(channel);
	NEED(rdma_create_id(channel, &id, &env, RDMA_PS_TCP) == 0);
	CHECK(id->channel == channel && id->context == &env && id->ps == RDMA_PS_TCP);
	CHECK(id->verbs == NULL && id->qp == NULL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

static void port_space(long ps)
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL;

	errno = 0;
	if (rdma_create_id(channel, &id, NULL, (enum rdma_port_space)ps) == 0) {
		EQ(id->ps, ps);
		EQ(rdma_destroy_id(id), 0);
	} else {
		CHECKF(says_unsupported(errno) || errno == EINVAL || errno == EPROTONOSUPPORT, "errno %d (%s)", errno,
		       strerror(errno));
	}
	rdma_destroy_event_channel(channel);
}

CASES
{
	ADD(port_space, RDMA_PS_TCP, "id.of-port-space-tcp");
	ADD(port_space, RDMA_PS_UDP, "id.of-port-space-udp-or-refused");
	ADD(port_space, RDMA_PS_IB, "id.of-port-space-ib-or-refused");
	ADD(port_space, RDMA_PS_IPOIB, "id.of-port-space-ipoib-or-refused");
}

CASE("id.port-space-of-none-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL;

	EQ(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)0x7777), -1);
	rdma_destroy_event_channel(channel);
}

CASE("channel.of-events-non-blocking")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;

	NEED(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	CHECK(!readable(channel->fd, 0));
	rdma_destroy_event_channel(channel);
}

CASE("channel.of-events-is-not-inherited-by-programs-or-is")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();

	NEED(channel);
	CHECK(fcntl(channel->fd, F_GETFD) >= 0);
	rdma_destroy_event_channel(channel);
}

/* --- bind */

static void bound(long family)
{
	need_cm();
	if (family == AF_INET6)
		need_v6();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	EQ(rdma_bind_addr(id, address((int)family, 0)), 0);
	CHECK(rdma_get_src_port(id) != 0);
	EQ(rdma_get_local_addr(id)->sa_family, family);
	EQ(rdma_get_dst_port(id), 0);
	NEED(id->verbs);
	CHECK(strcmp(ibv_get_device_name(id->verbs->device), ibv_get_device_name(env.ctx->device)) == 0);
	CHECK(id->port_num >= 1);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASES
{
	ADD(bound, AF_INET, "bind.v4-gives-a-port-and-the-device");
	ADD(bound, AF_INET6, "bind.v6-gives-a-port-and-the-device");
}

CASE("bind.any-address-has-no-device-yet")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct sockaddr_in any = {.sin_family = AF_INET};

	EQ(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	CHECK(rdma_get_src_port(id) != 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("bind.a-port-in-use-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *one = listen_on(channel, AF_INET, 1), *two = new_id(channel);

	int result = rdma_bind_addr(two, address(AF_INET, rdma_get_src_port(one)));
	if (result == 0)
		result = rdma_listen(two, 1);
	EQ(result, -1);
	EQ(errno, EADDRINUSE);
	EQ(rdma_destroy_id(two), 0);
	EQ(rdma_destroy_id(one), 0);
	/* And free again. */
	rdma_destroy_event_channel(channel);
}

CASE("bind.a-port-is-free-after-its-id")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *one = listen_on(channel, AF_INET, 1), *two = new_id(channel);
	int port = rdma_get_src_port(one);

	EQ(rdma_destroy_id(one), 0);
	EQ(rdma_bind_addr(two, address(AF_INET, port)), 0);
	EQ(rdma_listen(two, 1), 0);
	EQ(rdma_destroy_id(two), 0);
	rdma_destroy_event_channel(channel);
}

CASE("bind.a-foreign-address-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct sockaddr_in sin = {.sin_family = AF_INET};

	NEED(inet_pton(AF_INET, "192.0.2.77", &sin.sin_addr) == 1);
	EQ(rdma_bind_addr(id, (struct sockaddr *)&sin), -1);
	CHECKF(errno == EADDRNOTAVAIL || errno == ENODEV, "errno %d (%s)", errno, strerror(errno));
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("bind.an-unknown-family-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct sockaddr_storage odd = {.ss_family = AF_UNIX};

	EQ(rdma_bind_addr(id, (struct sockaddr *)&odd), -1);
	CHECK(errno == EINVAL || errno == EAFNOSUPPORT);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("bind.twice-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	EQ(rdma_bind_addr(id, address(AF_INET, 0)), 0);
	EQ(rdma_bind_addr(id, address(AF_INET, 0)), -1);
	EQ(errno, EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

/* --- resolve */

static void resolved(long family)
{
	need_cm();
	if (family == AF_INET6)
		need_v6();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	EQ(rdma_resolve_addr(id, NULL, address((int)family, htons(7471)), 2000), 0);
	CHECK(expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	NEED(id->verbs);
	EQ(rdma_get_dst_port(id), htons(7471));
	EQ(rdma_get_local_addr(id)->sa_family, family);
	EQ(rdma_get_peer_addr(id)->sa_family, family);
	EQ(rdma_resolve_route(id, 2000), 0);
	CHECK(expected(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASES
{
	ADD(resolved, AF_INET, "resolve.v4");
	ADD(resolved, AF_INET6, "resolve.v6");
}

CASE("resolve.with-a-source")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	EQ(rdma_resolve_addr(id, address(AF_INET, 0), address(AF_INET, htons(7471)), 2000), 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	struct sockaddr_in *source = (struct sockaddr_in *)rdma_get_local_addr(id);
	SAME(&source->sin_addr, &((struct sockaddr_in *)address(AF_INET, 0))->sin_addr, 4);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("resolve.route-before-address-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	FAILS(rdma_resolve_route(id, 2000), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("resolve.destroyed-while-it-runs")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();

	for (int i = 0; i < 20; i++) {
		struct rdma_cm_id *id = new_id(channel);
		EQ(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), 2000), 0);
		EQ(rdma_destroy_id(id), 0);
	}
	/* No event of a destroyed id is left. */
	CHECK(!readable(channel->fd, QUIET));
	rdma_destroy_event_channel(channel);
}

/* --- listening */

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

/* --- connecting */

/* An active id with its queue pair, and a listener, before the connection. */
static void half(struct pair *p)
{
	struct wish w = {};

	*p = (struct pair){};
	NEED(p->events = rdma_create_event_channel());
	p->listener = listen_on(p->events, AF_INET, 8);
	p->a.id = towards(p->events, p->listener);
	side_objects(&p->a, &w, false);
	struct ibv_qp_init_attr init = init_of(&p->a, &w);
	NEED(rdma_create_qp(p->a.id, p->a.pd, &init) == 0);
	p->a.qp = p->a.id->qp;
}

static void passive_qp(struct pair *p)
{
	struct wish w = {};

	side_objects(&p->b, &w, true);
	struct ibv_qp_init_attr init = init_of(&p->b, &w);
	NEED(rdma_create_qp(p->b.id, p->b.pd, &init) == 0);
	p->b.qp = p->b.id->qp;
}

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
	CHECK(event->id->verbs != NULL);
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
	CHECK(event->param.conn.private_data_len >= length);
	if (length)
		SAME(event->param.conn.private_data, data, (size_t)length);
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
			CHECK(event->param.conn.private_data_len >= length);
			if (length && event->param.conn.private_data_len >= length)
				SAME(event->param.conn.private_data, data, (size_t)length);
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
	struct rdma_cm_event *event;
	NEED(readable(p.events->fd, 5000));
	NEED(rdma_get_cm_event(p.events, &event) == 0);
	CHECKF(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_CONNECT_ERROR ||
		       event->event == RDMA_CM_EVENT_UNREACHABLE,
	       "the event is %s", rdma_event_str(event->event));
	NEED(rdma_ack_cm_event(event) == 0);
	pair_down(&p);
}

CASE("connect.nobody-listens")
{
	need_cm();
	struct pair p;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	half(&p);
	EQ(rdma_destroy_id(p.listener), 0);
	p.listener = NULL;
	NEED(rdma_connect(p.a.id, &param) == 0);
	struct rdma_cm_event *event;
	NEED(readable(p.events->fd, 5000));
	NEED(rdma_get_cm_event(p.events, &event) == 0);
	CHECKF(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_CONNECT_ERROR ||
		       event->event == RDMA_CM_EVENT_UNREACHABLE,
	       "the event is %s", rdma_event_str(event->event));
	CHECK(event->status != 0);
	NEED(rdma_ack_cm_event(event) == 0);
	pair_down(&p);
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
		CHECK(event->param.conn.initiator_depth <= 2 || event->param.conn.initiator_depth == 2);
		CHECK(event->param.conn.responder_resources >= 3);
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
	CHECK(p.b.id);
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

/* --- ends */

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

/* --- several */

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

CASE("connect.v6")
{
	need_cm();
	need_v6();
	struct pair p;

	pair_up(&p, (struct wish){.family = AF_INET6});
	EQ(rdma_get_peer_addr(p.a.id)->sa_family, AF_INET6);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
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

/* --- events */

struct later {
	struct rdma_cm_event *event;
	double acknowledged;
};

static void *acknowledge_later(void *of)
{
	struct later *later = of;

	sleep_ms(150);
	later->acknowledged = now();
	rdma_ack_cm_event(later->event);
	return NULL;
}

CASE("event.destroying-an-id-waits-for-the-acknowledgement")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	pthread_t thread;
	struct later later = {};

	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), 2000) == 0);
	later.event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(pthread_create(&thread, NULL, acknowledge_later, &later) == 0);
	EQ(rdma_destroy_id(id), 0);
	CHECK(later.acknowledged > 0 && now() >= later.acknowledged);
	pthread_join(thread, NULL);
	rdma_destroy_event_channel(channel);
}

CASE("event.channel-is-readable-while-one-waits")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), 2000) == 0);
	NEED(readable(channel->fd, 5000));
	NEED(readable(channel->fd, 0));
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!readable(channel->fd, QUIET));
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("migrate.an-id-takes-its-events-along")
{
	need_cm();
	struct rdma_event_channel *one = rdma_create_event_channel(), *two = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(one);

	EQ(rdma_migrate_id(id, two), 0);
	CHECK(id->channel == two);
	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), 2000) == 0);
	CHECK(expected(two, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	CHECK(!readable(one->fd, 0));
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(one);
	rdma_destroy_event_channel(two);
}

CASE("migrate.a-waiting-event-moves")
{
	need_cm();
	struct rdma_event_channel *one = rdma_create_event_channel(), *two = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(one);

	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), 2000) == 0);
	NEED(readable(one->fd, 5000));
	EQ(rdma_migrate_id(id, two), 0);
	CHECK(expected(two, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(one);
	rdma_destroy_event_channel(two);
}

CASE("migrate.a-connection-works-on")
{
	need_cm();
	struct pair p;
	struct rdma_event_channel *two = rdma_create_event_channel();

	pair_up(&p, (struct wish){});
	EQ(rdma_migrate_id(p.b.id, two), 0);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	EQ(rdma_disconnect(p.a.id), 0);
	CHECK(expected(two, RDMA_CM_EVENT_DISCONNECTED) == p.b.id);
	CHECK(expected(p.events, RDMA_CM_EVENT_DISCONNECTED) == p.a.id);
	pair_down(&p);
	rdma_destroy_event_channel(two);
}

/* --- options, devices, queue pairs made otherwise */

CASE("option.type-of-service")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	uint8_t tos = 0x20;

	EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("option.reuse-address")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	int on = 1;

	EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("option.v6-only")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	int on = 1;

	EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("option.of-none-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	int on = 1;

	EQ(rdma_set_option(id, 99, 99, &on, sizeof(on)), -1);
	CHECK(errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOPROTOOPT);
	EQ(rdma_set_option(id, RDMA_OPTION_ID, 99, &on, sizeof(on)), -1);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("option.of-a-wrong-size-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	uint64_t value = 0;

	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof(value)), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("devices.of-the-connection-manager-contain-ours")
{
	need_cm();
	int count = -1, found = 0;
	struct ibv_context **list = rdma_get_devices(&count);

	NEED(list && count >= 1);
	for (int i = 0; i < count; i++)
		found += strcmp(ibv_get_device_name(list[i]->device), ibv_get_device_name(env.ctx->device)) == 0;
	EQ(found, 1);
	CHECK(list[count] == NULL);
	rdma_free_devices(list);
}

CASE("qp.of-an-id-without-a-device-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	EQ(rdma_create_qp(id, NULL, &init), -1);
	CHECK(errno == EINVAL || errno == ENODEV);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("qp.of-an-id-with-defaults-of-everything")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	EQ(rdma_create_qp(id, NULL, &init), 0);
	NEED(id->qp && id->pd && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
	CHECK(id->qp->pd == id->pd);
	EQ(state_of(id->qp), IBV_QPS_INIT);
	rdma_destroy_qp(id);
	CHECK(id->qp == NULL);
	EQ(rdma_destroy_id(id), 0);
	EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

CASE("qp.a-second-one-of-an-id-is-refused")
{
	need_cm();
	struct pair p;

	half(&p);
	struct ibv_qp_init_attr init = init_of(&p.a, &(struct wish){});
	FAILS(rdma_create_qp(p.a.id, p.a.pd, &init), EINVAL);
	pair_down(&p);
}

CASE("qp.of-a-domain-of-another-context-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);
	struct ibv_context *other = ibv_open_device(env.ctx->device);
	NEED(other && other != id->verbs);
	struct ibv_pd *pd = ibv_alloc_pd(other);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	FAILS(rdma_create_qp(id, pd, &init), EINVAL);
}

CASE("qp.by-hand-and-named-by-number")
{
	need_cm();
	struct pair p = {};
	struct wish w = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	/* Neither end gives its queue pair to its id: rdma_connect(3), qp_num. */
	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 1);
	p.a.id = towards(p.events, p.listener);
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a;
		if (i)
			s->id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		NEED(s->qp = ibv_create_qp(s->pd, &init));
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
		int mask;
		NEED(rdma_init_qp_attr(s->id, &attr, &mask) == 0);
		NEED(ibv_modify_qp(s->qp, &attr, mask) == 0);
		param.qp_num = s->qp->qp_num;
		NEED((i ? rdma_accept(s->id, &param) : rdma_connect(s->id, &param)) == 0);
	}
	/* The active end is told of the answer and completes by itself; devices on which the manager does the rest
	   say "established" at once. */
	struct rdma_cm_event *event;
	for (int i = 0; i < 2; i++) {
		NEED(readable(p.events->fd, 5000));
		NEED(rdma_get_cm_event(p.events, &event) == 0);
		CHECKF(event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_CONNECT_RESPONSE,
		       "%s", rdma_event_str(event->event));
		bool response = event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
		NEED(rdma_ack_cm_event(event) == 0);
		if (response) {
			NEED(rdma_establish(p.a.id) == 0);
		}
	}
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	NEED(ibv_destroy_qp(p.a.qp) == 0 && ibv_destroy_qp(p.b.qp) == 0);
	p.a.qp = p.b.qp = NULL;
	pair_down(&p);
}
