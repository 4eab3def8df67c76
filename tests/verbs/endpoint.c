/* rdma_getaddrinfo, endpoints, synchronous ids, and the shorthands of rdma/rdma_verbs.h. */
#include "env.h"

/* --- rdma_getaddrinfo */

CASE("addrinfo.of-a-numeric-address")
{
	need_cm();
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info = NULL;

	NEED(rdma_getaddrinfo(env.address, "7471", &hints, &info) == 0);
	NEED(info);
	EQ(info->ai_family, AF_INET);
	EQ(info->ai_port_space, RDMA_PS_TCP);
	EQ(info->ai_qp_type, IBV_QPT_RC);
	NEED(info->ai_dst_addr && info->ai_dst_len >= (socklen_t)sizeof(struct sockaddr_in));
	struct sockaddr_in *to = (struct sockaddr_in *)info->ai_dst_addr;
	EQ(to->sin_port, htons(7471));
	SAME(&to->sin_addr, &((struct sockaddr_in *)address(AF_INET, 0))->sin_addr, 4);
	rdma_freeaddrinfo(info);
}

CASE("addrinfo.passive-is-a-source")
{
	need_cm();
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info = NULL;

	NEED(rdma_getaddrinfo(env.address, "7471", &hints, &info) == 0);
	NEED(info && info->ai_src_addr);
	EQ(((struct sockaddr_in *)info->ai_src_addr)->sin_port, htons(7471));
	EQ(info->ai_src_len, sizeof(struct sockaddr_in));
	CHECK(info->ai_dst_addr == NULL);
	CHECK(info->ai_flags & RAI_PASSIVE);
	rdma_freeaddrinfo(info);
}

CASE("addrinfo.of-v6")
{
	need_cm();
	need_v6();
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info = NULL;

	NEED(rdma_getaddrinfo(env.address6, "7471", &hints, &info) == 0);
	NEED(info && info->ai_dst_addr);
	EQ(info->ai_family, AF_INET6);
	EQ(info->ai_dst_addr->sa_family, AF_INET6);
	EQ(((struct sockaddr_in6 *)info->ai_dst_addr)->sin6_port, htons(7471));
	EQ(info->ai_port_space, RDMA_PS_TCP);
	if (env.weft)
		CHECK(info->ai_next == NULL && info->ai_src_addr == NULL);
	rdma_freeaddrinfo(info);
}

CASE("addrinfo.without-hints")
{
	need_cm();
	struct rdma_addrinfo *info = NULL;

	NEED(rdma_getaddrinfo(env.address, "7471", NULL, &info) == 0);
	NEED(info);
	EQ(info->ai_family, AF_INET);
	rdma_freeaddrinfo(info);
	NEED(rdma_getaddrinfo(env.address, NULL, NULL, &info) == 0);
	NEED(info);
	EQ(info->ai_family, AF_INET);
	rdma_freeaddrinfo(info);
}

CASE("addrinfo.of-the-addresses-in-the-hints")
{
	need_cm();
	struct rdma_addrinfo hints = {.ai_family = AF_INET,
				      .ai_port_space = RDMA_PS_TCP,
				      .ai_qp_type = IBV_QPT_RC,
				      .ai_dst_addr = address(AF_INET, 5),
				      .ai_dst_len = sizeof(struct sockaddr_in),
				      .ai_src_addr = address(AF_INET, 6),
				      .ai_src_len = sizeof(struct sockaddr_in)}, *info = NULL;

	NEED(rdma_getaddrinfo(NULL, NULL, &hints, &info) == 0);
	/* Copies: the program's own go away. */
	CHECK(info->ai_dst_addr != hints.ai_dst_addr);
	SAME(info->ai_dst_addr, hints.ai_dst_addr, hints.ai_dst_len);
	SAME(info->ai_src_addr, hints.ai_src_addr, hints.ai_src_len);
	rdma_freeaddrinfo(info);
}

CASE("addrinfo.numeric-host-only-refuses-a-name")
{
	need_cm();
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *info = NULL;

	CHECK(rdma_getaddrinfo("localhost", "7471", &hints, &info) != 0);
}

CASE("addrinfo.of-nothing-is-refused")
{
	need_cm();
	struct rdma_addrinfo *info = NULL;

	CHECK(rdma_getaddrinfo(NULL, NULL, NULL, &info) != 0);
}

CASE("addrinfo.of-an-unknown-service-is-refused")
{
	need_cm();
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info = NULL;

	CHECK(rdma_getaddrinfo(env.address, "no-such-service-here", &hints, &info) != 0);
}

/* --- endpoints and synchronous ids */

struct sync {
	char port[8];
	struct rdma_cm_id *listener, *server, *client;
	struct ibv_mr *server_mr, *client_mr;
	char *server_buf, *client_buf;
	pthread_t thread;
};

static struct ibv_qp_init_attr small(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
}

static void sync_listen(struct sync *s)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = small();

	*s = (struct sync){};
	NEED(rdma_getaddrinfo(env.address, "0", &hints, &info) == 0);
	NEED(rdma_create_ep(&s->listener, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	NEED(rdma_listen(s->listener, 4) == 0);
	snprintf(s->port, sizeof(s->port), "%d", ntohs(rdma_get_src_port(s->listener)));
}

/* The last call on a synchronous id left this event there. */
static bool tells(const struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	return id->event && id->event->event == type;
}

static void *serve(void *of)
{
	struct sync *s = of;

	if (rdma_get_request(s->listener, &s->server) != 0)
		return NULL;
	CHECK(tells(s->server, RDMA_CM_EVENT_CONNECT_REQUEST));
	s->server_buf = some_memory(4096);
	s->server_mr = rdma_reg_msgs(s->server, s->server_buf, 4096);
	NEED(s->server_mr);
	NEED(rdma_post_recv(s->server, s, s->server_buf, 64, s->server_mr) == 0);
	NEED(rdma_accept(s->server, NULL) == 0);
	return NULL;
}

static void sync_up(struct sync *s)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = small();

	sync_listen(s);
	NEED(pthread_create(&s->thread, NULL, serve, s) == 0);
	NEED(rdma_getaddrinfo(env.address, s->port, &hints, &info) == 0);
	NEED(rdma_create_ep(&s->client, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	s->client_buf = some_memory(4096);
	NEED(s->client_mr = rdma_reg_msgs(s->client, s->client_buf, 4096));
	NEED(rdma_connect(s->client, NULL) == 0);
	pthread_join(s->thread, NULL);
	NEED(s->server);
}

static void sync_down(struct sync *s)
{
	rdma_disconnect(s->client);
	rdma_disconnect(s->server);
	EQ(rdma_dereg_mr(s->client_mr), 0);
	EQ(rdma_dereg_mr(s->server_mr), 0);
	rdma_destroy_ep(s->client);
	rdma_destroy_ep(s->server);
	rdma_destroy_ep(s->listener);
}

CASE("endpoint.passive-has-no-queue-pair-yet")
{
	need_cm();
	struct sync s;

	sync_listen(&s);
	CHECK(s.listener->qp == NULL);
	rdma_destroy_ep(s.listener);
}

CASE("endpoint.active-has-a-queue-pair")
{
	need_cm();
	struct sync s;

	sync_up(&s);
	CHECK(s.client->qp && s.client->pd && s.client->send_cq && s.client->recv_cq);
	CHECK(s.client->verbs && s.client->send_cq_channel && s.client->recv_cq_channel);
	CHECK(s.server->qp && s.server->pd);
	CHECK(s.client->channel != NULL || s.client->event == NULL);
	sync_down(&s);
}

CASE("synchronous.each-call-leaves-its-event-at-the-id")
{
	need_cm();
	struct sync s;

	sync_up(&s);
	CHECK(s.server != s.listener && s.server->channel != s.listener->channel);
	CHECK(tells(s.client, RDMA_CM_EVENT_ESTABLISHED));
	CHECK(tells(s.server, RDMA_CM_EVENT_ESTABLISHED));
	EQ(rdma_disconnect(s.client), 0);
	CHECK(tells(s.client, RDMA_CM_EVENT_DISCONNECTED));
	if (env.weft)
		EQ(rdma_disconnect(s.client), 0);
	EQ(rdma_disconnect(s.server), 0);
	sync_down(&s);
}

CASE("endpoint.sends")
{
	need_cm();
	struct sync s;
	struct ibv_wc wc = {};

	sync_up(&s);
	strcpy(s.client_buf, "hello");
	NEED(rdma_post_send(s.client, &s, s.client_buf, 6, s.client_mr, 0) == 0);
	EQ(rdma_get_send_comp(s.client, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.wr_id, (uintptr_t)&s);
	EQ(rdma_get_recv_comp(s.server, &wc), 1);
	EQ(wc.byte_len, 6);
	CHECK(strcmp(s.server_buf, "hello") == 0);
	sync_down(&s);
}

CASE("endpoint.sends-inline")
{
	need_cm();
	struct sync s;
	struct ibv_wc wc = {};

	sync_up(&s);
	NEED(rdma_post_send(s.client, &s, "in line", 8, NULL, IBV_SEND_INLINE) == 0);
	EQ(rdma_get_recv_comp(s.server, &wc), 1);
	CHECK(strcmp(s.server_buf, "in line") == 0);
	sync_down(&s);
}

CASE("endpoint.writes-and-reads")
{
	need_cm();
	struct sync s;
	struct ibv_wc wc = {};

	sync_up(&s);
	struct ibv_mr *target = rdma_reg_write(s.server, s.server_buf + 1024, 64);
	struct ibv_mr *source = rdma_reg_read(s.server, s.server_buf + 2048, 64);
	NEED(target && source);
	strcpy(s.client_buf, "written");
	strcpy(s.server_buf + 2048, "read");
	NEED(rdma_post_write(s.client, NULL, s.client_buf, 8, s.client_mr, 0, (uintptr_t)s.server_buf + 1024,
			     target->rkey) == 0);
	EQ(rdma_get_send_comp(s.client, &wc), 1);
	EQ(wc.opcode, IBV_WC_RDMA_WRITE);
	struct ibv_mr *sink = rdma_reg_write(s.client, s.client_buf + 1024, 64);
	NEED(sink);
	NEED(rdma_post_read(s.client, NULL, s.client_buf + 1024, 5, sink, 0, (uintptr_t)s.server_buf + 2048,
			    source->rkey) == 0);
	EQ(rdma_get_send_comp(s.client, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(strcmp(s.client_buf + 1024, "read") == 0);
	NEED(rdma_post_send(s.client, NULL, s.client_buf, 1, s.client_mr, 0) == 0);
	EQ(rdma_get_recv_comp(s.server, &wc), 1);
	CHECK(strcmp(s.server_buf + 1024, "written") == 0);
	EQ(rdma_dereg_mr(target), 0);
	EQ(rdma_dereg_mr(source), 0);
	EQ(rdma_dereg_mr(sink), 0);
	sync_down(&s);
}

CASE("endpoint.vectors")
{
	need_cm();
	struct sync s;
	struct ibv_wc wc = {};

	sync_up(&s);
	strcpy(s.client_buf, "vector");
	struct ibv_sge list = {(uintptr_t)s.client_buf, 7, s.client_mr->lkey};
	NEED(rdma_post_sendv(s.client, NULL, &list, 1, 0) == 0);
	EQ(rdma_get_recv_comp(s.server, &wc), 1);
	CHECK(strcmp(s.server_buf, "vector") == 0);
	sync_down(&s);
}

CASE("endpoint.refused-connection-is-an-errno")
{
	need_cm();
	struct sync s;
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = small();
	int keeper;

	do {
		sync_listen(&s);
		rdma_destroy_ep(s.listener);
	} while ((keeper = keep_port(htons((in_port_t)atoi(s.port)))) < 0);
	NEED(rdma_getaddrinfo(env.address, s.port, &hints, &info) == 0);
	NEED(rdma_create_ep(&s.client, info, NULL, &init) == 0);
	EQ(rdma_connect(s.client, NULL), -1);
	CHECKF(errno == ECONNREFUSED || errno == ECONNRESET || errno == EHOSTUNREACH || errno == ETIMEDOUT,
	       "errno %d (%s)", errno, strerror(errno));
	if (env.weft)
		CHECK(errno == ECONNREFUSED && tells(s.client, RDMA_CM_EVENT_REJECTED));
	rdma_destroy_ep(s.client);
	rdma_freeaddrinfo(info);
	EQ(close(keeper), 0);
}

static void *reject(void *of)
{
	struct sync *s = of;

	NEED(rdma_get_request(s->listener, &s->server) == 0);
	EQ(rdma_reject(s->server, NULL, 0), 0);
	return NULL;
}

CASE("endpoint.rejected-connection-is-refused")
{
	need_cm();
	struct sync s;
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = small();

	sync_listen(&s);
	NEED(pthread_create(&s.thread, NULL, reject, &s) == 0);
	NEED(rdma_getaddrinfo(env.address, s.port, &hints, &info) == 0);
	NEED(rdma_create_ep(&s.client, info, NULL, &init) == 0);
	FAILS(rdma_connect(s.client, NULL), ECONNREFUSED);
	pthread_join(s.thread, NULL);
	rdma_destroy_ep(s.client);
	rdma_destroy_ep(s.server);
	rdma_destroy_ep(s.listener);
	rdma_freeaddrinfo(info);
}

CASE("synchronous.id-without-a-channel")
{
	need_cm();
	struct rdma_cm_id *id;

	NEED(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(id->channel);
	/* It returns when the address is resolved, and the event is at the id. */
	EQ(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience), 0);
	NEED(id->verbs);
	EQ(rdma_resolve_route(id, patience), 0);
	EQ(rdma_destroy_id(id), 0);
}

CASE("synchronous.get-request-on-an-id-with-a-channel-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *request;

	FAILS(rdma_get_request(listener, &request), EINVAL);
	EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

CASE("synchronous.migrated-to-a-channel-it-tells-events")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	NEED(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	EQ(rdma_migrate_id(id, channel), 0);
	EQ(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience), 0);
	CHECK(expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("srq.of-an-id")
{
	need_cm();
	need_srq();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};

	struct ibv_qp_init_attr qp = small();
	EQ(rdma_create_srq(id, NULL, &init), 0);
	NEED(id->srq);
	CHECK(id->srq->pd == id->pd);
	/* A queue pair of the id takes it of itself. */
	EQ(rdma_create_qp(id, NULL, &qp), 0);
	CHECK(id->qp && id->qp->srq == id->srq);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	CHECK(id->srq == NULL);
	EQ(rdma_destroy_id(id), 0);
	EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

CASE("multicast.joined-or-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct sockaddr_in group = {.sin_family = AF_INET};

	NEED(inet_pton(AF_INET, "239.1.2.3", &group.sin_addr) == 1);
	/* An id of port space TCP has no groups. */
	EQ(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), -1);
	CHECK(errno);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}
