/* The connection manager's datagram service (RDMA_PS_UDP): who serves datagrams at a port is asked for and answered. */
#include "env.h"

/* A client and the request that it made, with a queue pair on each side. */
struct service {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener, *client, *server;
	struct ibv_mr *mr;
	uint8_t *memory;
};

enum { AREA = 4096, GRH = 40 };

static struct rdma_cm_id *datagram_id(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	need_cm();
	errno = 0;
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) != 0)
		absent_or_wrong("ids for datagrams");
	return id;
}

static struct rdma_cm_id *resolved(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id = datagram_id(channel);
	int family = rdma_get_local_addr(listener)->sa_family;

	NEED(rdma_resolve_addr(id, NULL, address(family, rdma_get_src_port(listener)), patience) == 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(rdma_resolve_route(id, patience) == 0);
	expected(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static struct ibv_qp_init_attr datagrams(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
	};
}

static void with_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = datagrams();

	NEED(rdma_create_qp(id, NULL, &init) == 0);
}

static void open_service(struct service *s, int family)
{
	*s = (struct service){};
	NEED(s->events = rdma_create_event_channel());
	s->listener = datagram_id(s->events);
	NEED(rdma_bind_addr(s->listener, address(family, 0)) == 0);
	NEED(rdma_listen(s->listener, 4) == 0);
	CHECK(rdma_get_src_port(s->listener) != 0);
	s->client = resolved(s->events, s->listener);
	CHECK(s->client->verbs && s->client->qp_type == IBV_QPT_UD && s->client->ps == RDMA_PS_UDP);
	with_qp(s->client);
}

static void end_id(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	EQ(rdma_destroy_id(id), 0);
}

static void close_service(struct service *s)
{
	if (s->mr)
		EQ(ibv_dereg_mr(s->mr), 0);
	end_id(s->client);
	end_id(s->server);
	end_id(s->listener);
	rdma_destroy_event_channel(s->events);
}

/* One datagram from one id to the other, by what the client was told; what came is compared. */
static void datagram_goes(struct service *s, struct ibv_ah *ah, uint32_t number, uint32_t qkey)
{
	struct rdma_cm_id *to = s->server, *from = s->client;
	struct ibv_wc wc;

	NEED(s->memory = some_memory(AREA));
	NEED(s->mr = ibv_reg_mr(to->pd, s->memory, AREA, IBV_ACCESS_LOCAL_WRITE));
	NEED(to->pd == from->pd);
	fill(s->memory + 1024, 100, 7);
	NEED(rdma_post_recv(to, NULL, s->memory, GRH + 100, s->mr) == 0);
	struct ibv_sge list = {(uintptr_t)s->memory + 1024, 100, s->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				 .wr.ud = {.ah = ah, .remote_qpn = number, .remote_qkey = qkey}}, *bad;
	NEED(ibv_post_send(from->qp, &wr, &bad) == 0);
	EQ(rdma_get_send_comp(from, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(rdma_get_recv_comp(to, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, GRH + 100);
	EQ(wc.src_qp, from->qp->qp_num);
	SAME(s->memory + GRH, s->memory + 1024, 100);
}

static void served(long family)
{
	struct service s;
	uint8_t mine[180], theirs[136];

	if (family == AF_INET6)
		need_v6();
	open_service(&s, (int)family);
	fill(mine, sizeof(mine), 1);
	fill(theirs, sizeof(theirs), 2);
	struct rdma_conn_param param = {.private_data = mine, .private_data_len = sizeof(mine)};
	NEED(rdma_connect(s.client, &param) == 0);
	struct rdma_cm_event *event = expect(s.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == s.listener);
	EQ(event->status, 0);
	CHECK(event->param.ud.private_data_len >= sizeof(mine));
	SAME(event->param.ud.private_data, mine, sizeof(mine));
	s.server = event->id;
	CHECK(s.server->verbs && s.server->qp_type == IBV_QPT_UD && s.server->ps == RDMA_PS_UDP);
	EQ(rdma_get_src_port(s.server), rdma_get_src_port(s.listener));
	NEED(rdma_ack_cm_event(event) == 0);
	with_qp(s.server);
	param = (struct rdma_conn_param){.private_data = theirs, .private_data_len = sizeof(theirs)};
	NEED(rdma_accept(s.server, &param) == 0);
	event = expect(s.events, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == s.client);
	EQ(event->status, 0);
	CHECK(event->param.ud.private_data_len >= sizeof(theirs));
	SAME(event->param.ud.private_data, theirs, sizeof(theirs));
	EQ(event->param.ud.qp_num, s.server->qp->qp_num);
	EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
	struct ibv_ah *ah = ibv_create_ah(s.client->pd, &event->param.ud.ah_attr);
	NEED(ah);
	uint32_t number = event->param.ud.qp_num, qkey = event->param.ud.qkey;
	NEED(rdma_ack_cm_event(event) == 0);
	/* The server hears no more of it. */
	CHECK(!readable(s.events->fd, 50));
	datagram_goes(&s, ah, number, qkey);
	EQ(ibv_destroy_ah(ah), 0);
	close_service(&s);
}

CASES
{
	ADD(served, AF_INET, "datagrams.are-found-by-port-over-ipv4");
	ADD(served, AF_INET6, "datagrams.are-found-by-port-over-ipv6");
}

CASE("datagrams.queue-pair-of-an-id-is-ready-to-send")
{
	struct service s;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	open_service(&s, AF_INET);
	EQ(state_of(s.client->qp), IBV_QPS_RTS);
	NEED(ibv_query_qp(s.client->qp, &attr, IBV_QP_QKEY, &init) == 0);
	EQ(attr.qkey, RDMA_UDP_QKEY);
	EQ(init.qp_type, IBV_QPT_UD);
	close_service(&s);
}

CASE("datagrams.queue-pair-of-another-type-is-refused")
{
	struct service s;
	struct ibv_qp_init_attr init = datagrams();
	struct rdma_event_channel *channel = rdma_create_event_channel();

	open_service(&s, AF_INET);
	rdma_destroy_qp(s.client);
	init.qp_type = IBV_QPT_RC;
	FAILS(rdma_create_qp(s.client, NULL, &init), EINVAL);
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);
	init = datagrams();
	FAILS(rdma_create_qp(id, NULL, &init), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
	close_service(&s);
}

CASE("datagrams.rejected-with-private-data")
{
	struct service s;

	open_service(&s, AF_INET);
	NEED(rdma_connect(s.client, NULL) == 0);
	s.server = expected(s.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	NEED(rdma_reject(s.server, "no", 2) == 0);
	/* The status is InfiniBand's of the answer: 2, rejected. */
	struct rdma_cm_event *event = expect(s.events, RDMA_CM_EVENT_UNREACHABLE);
	EQ(event->status, 2);
	CHECK(event->id == s.client && event->param.ud.private_data_len >= 2);
	SAME(event->param.ud.private_data, "no", 2);
	NEED(rdma_ack_cm_event(event) == 0);
	close_service(&s);
}

CASE("datagrams.nobody-listens")
{
	struct service s;

	open_service(&s, AF_INET);
	EQ(rdma_destroy_id(s.listener), 0);
	s.listener = NULL;
	NEED(rdma_connect(s.client, NULL) == 0);
	struct rdma_cm_event *event = expect(s.events, RDMA_CM_EVENT_UNREACHABLE);
	/* 1: the service is not known there. */
	EQ(event->status, 1);
	NEED(rdma_ack_cm_event(event) == 0);
	close_service(&s);
}

CASE("datagrams.too-much-private-data-is-refused")
{
	struct service s;
	uint8_t data[255];
	struct rdma_conn_param param = {.private_data = data, .private_data_len = 181};

	open_service(&s, AF_INET);
	fill(data, sizeof(data), 1);
	FAILS(rdma_connect(s.client, &param), EINVAL);
	NEED(rdma_connect(s.client, NULL) == 0);
	s.server = expected(s.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	with_qp(s.server);
	param.private_data_len = 137;
	FAILS(rdma_accept(s.server, &param), EINVAL);
	FAILS(rdma_reject(s.server, data, 137), EINVAL);
	NEED(rdma_accept(s.server, NULL) == 0);
	expected(s.events, RDMA_CM_EVENT_ESTABLISHED);
	close_service(&s);
}

CASE("datagrams.calls-out-of-place-are-refused")
{
	struct service s;

	open_service(&s, AF_INET);
	FAILS(rdma_accept(s.client, NULL), EINVAL);
	FAILS(rdma_reject(s.client, NULL, 0), EINVAL);
	FAILS(rdma_connect(s.listener, NULL), EINVAL);
	struct rdma_cm_id *fresh = datagram_id(s.events);
	FAILS(rdma_connect(fresh, NULL), EINVAL);
	EQ(rdma_destroy_id(fresh), 0);
	close_service(&s);
}

CASE("datagrams.port-space-is-its-own")
{
	struct service s;
	struct rdma_cm_id *other, *same;

	open_service(&s, AF_INET);
	/* A listener for connections may have the number, one for datagrams may not. */
	NEED(rdma_create_id(s.events, &other, NULL, RDMA_PS_TCP) == 0);
	errno = 0;
	if (rdma_bind_addr(other, address(AF_INET, rdma_get_src_port(s.listener))) != 0)
		EQ(errno, EADDRINUSE);
	same = datagram_id(s.events);
	FAILS(rdma_bind_addr(same, address(AF_INET, rdma_get_src_port(s.listener))), EADDRINUSE);
	EQ(rdma_destroy_id(other), 0);
	EQ(rdma_destroy_id(same), 0);
	close_service(&s);
}

CASE("datagrams.options-of-the-id")
{
	struct service s;
	uint8_t tos = 0x20;
	int on = 1;

	open_service(&s, AF_INET);
	EQ(rdma_set_option(s.client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), 0);
	EQ(rdma_set_option(s.client, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	NEED(rdma_connect(s.client, NULL) == 0);
	s.server = expected(s.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	with_qp(s.server);
	NEED(rdma_accept(s.server, NULL) == 0);
	struct rdma_cm_event *event = expect(s.events, RDMA_CM_EVENT_ESTABLISHED);
	EQ(event->param.ud.ah_attr.grh.traffic_class, tos);
	NEED(rdma_ack_cm_event(event) == 0);
	close_service(&s);
}

CASE("datagrams.init-qp-attr-gives-the-q-key")
{
	struct service s;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask = 0;

	open_service(&s, AF_INET);
	EQ(rdma_init_qp_attr(s.client, &attr, &mask), 0);
	EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	EQ(attr.qkey, RDMA_UDP_QKEY);
	close_service(&s);
}

CASE("datagrams.disconnect-is-the-end-of-the-queue-pair")
{
	struct service s;

	open_service(&s, AF_INET);
	EQ(rdma_disconnect(s.client), 0);
	EQ(state_of(s.client->qp), IBV_QPS_ERR);
	close_service(&s);
}

static void *ask(void *where)
{
	struct rdma_cm_id *id = where;

	return (void *)(long)(rdma_connect(id, NULL) ? errno : 0);
}

CASE("datagrams.of-endpoints-without-a-channel")
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_UDP, .ai_flags = RAI_PASSIVE}, *info;
	struct ibv_qp_init_attr init = datagrams();
	struct rdma_cm_id *listener, *client, *server;
	char port[16];
	pthread_t asking;
	void *failed;

	end_id(datagram_id(NULL));
	NEED(rdma_getaddrinfo(env.address, "0", &hints, &info) == 0);
	EQ(info->ai_qp_type, IBV_QPT_UD);
	NEED(rdma_create_ep(&listener, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	NEED(rdma_listen(listener, 0) == 0);
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(listener)));
	hints.ai_flags = 0;
	NEED(rdma_getaddrinfo(env.address, port, &hints, &info) == 0);
	NEED(rdma_create_ep(&client, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	EQ(state_of(client->qp), IBV_QPS_RTS);
	NEED(pthread_create(&asking, NULL, ask, client) == 0);
	NEED(rdma_get_request(listener, &server) == 0);
	NEED(server->qp && server->qp->qp_type == IBV_QPT_UD);
	NEED(rdma_accept(server, NULL) == 0);
	NEED(pthread_join(asking, &failed) == 0);
	EQ((long)failed, 0);
	NEED(client->event && client->event->event == RDMA_CM_EVENT_ESTABLISHED);
	EQ(client->event->param.ud.qp_num, server->qp->qp_num);
	/* There is nothing to wait for. */
	EQ(rdma_disconnect(client), 0);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

CASE("datagrams.a-request-that-is-dropped-is-rejected")
{
	struct service s;

	open_service(&s, AF_INET);
	NEED(rdma_connect(s.client, NULL) == 0);
	EQ(rdma_destroy_id(expected(s.events, RDMA_CM_EVENT_CONNECT_REQUEST)), 0);
	expected(s.events, RDMA_CM_EVENT_UNREACHABLE);
	close_service(&s);
}

CASE("datagrams.groups-are-joined-or-refused-in-words")
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = datagram_id(channel);
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xe8010203)};

	/* With an address of its own it needs no route to the group. */
	NEED(rdma_bind_addr(id, address(AF_INET, 0)) == 0);
	NEED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&group, patience) == 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	with_qp(id);
	errno = 0;
	if (rdma_join_multicast(id, (struct sockaddr *)&group, NULL) != 0)
		CHECKF(says_unsupported(errno), "errno %d (%s)", errno, strerror(errno));
	FAILS(rdma_join_multicast(id, NULL, NULL), EINVAL);
	end_id(id);
	rdma_destroy_event_channel(channel);
}
