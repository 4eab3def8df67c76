/* Connections: the way up, the ways down, what events say. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>

#include "pair.h"

static struct ibv_qp_init_attr small_qp(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

/* A queue pair with everything of the id's own. */
static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = small_qp();

	NEED(rdma_create_qp(id, NULL, &init) == 0);
}

static void drop(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	EQUAL(rdma_destroy_id(id), 0);
}

/* Both ends' ESTABLISHED, in whatever order; gives the active side's private data. */
static void both_established(struct rdma_event_channel *channel, struct rdma_cm_id *active,
			     const unsigned char *data, int length)
{
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
		EQUAL(event->status, 0);
		if (event->id == active) {
			EQUAL(event->param.conn.private_data_len, length);
			CHECK(length ? !memcmp(event->param.conn.private_data, data, length) :
				       event->param.conn.private_data == NULL);
		}
		EQUAL(rdma_ack_cm_event(event), 0);
	}
}

static void both_disconnected(struct rdma_event_channel *channel)
{
	expect_ack(channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_ack(channel, RDMA_CM_EVENT_DISCONNECTED);
}

static void private_data(int length)
{
	char name[64];
	unsigned char there[255], back[255];
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *a, *b;
	struct rdma_cm_event *event;

	snprintf(name, sizeof(name), "%d octets of private data both ways", length);
	begin_case(name);
	fill(there, sizeof(there), 1);
	fill(back, sizeof(back), 2);
	NEED(channel);
	listener = listen_on(channel, AF_INET, 4);
	a = towards(channel, listener);
	give_qp(a);
	struct rdma_conn_param param = {.private_data = there,
					.private_data_len = length,
					.responder_resources = 3,
					.initiator_depth = 5};
	EQUAL(rdma_connect(a, &param), 0);
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	b = event->id;
	CHECK(event->listen_id == listener && b != listener);
	EQUAL(event->status, 0);
	EQUAL(event->param.conn.private_data_len, length);
	CHECK(length ? !memcmp(event->param.conn.private_data, there, length) :
		       event->param.conn.private_data == NULL);
	/* What the active side may have outstanding is what the passive side has to serve. */
	EQUAL(event->param.conn.responder_resources, 5);
	EQUAL(event->param.conn.initiator_depth, 3);
	EQUAL(rdma_ack_cm_event(event), 0);
	CHECK(b->verbs && b->pd && b->port_num == 1 && b->channel == channel);
	EQUAL(rdma_get_src_port(b), rdma_get_src_port(listener));
	give_qp(b);
	param.private_data = back;
	EQUAL(rdma_accept(b, &param), 0);
	both_established(channel, a, back, length);
	EQUAL(rdma_get_src_port(a), rdma_get_dst_port(b));
	EQUAL(rdma_disconnect(a), 0);
	both_disconnected(channel);
	drop(a);
	drop(b);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

static void rejecting(int length)
{
	char name[64];
	unsigned char why[255];
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *a, *b;
	struct rdma_cm_event *event;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_recv_wr recv = {.wr_id = 77}, *bad;

	snprintf(name, sizeof(name), "reject with %d octets", length);
	begin_case(name);
	fill(why, sizeof(why), 3);
	listener = listen_on(channel, AF_INET, 4);
	a = towards(channel, listener);
	give_qp(a);
	EQUAL(ibv_post_recv(a->qp, &recv, &bad), 0);
	EQUAL(rdma_connect(a, &param), 0);
	b = expect_ack(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQUAL(rdma_reject(b, why, length), 0);
	event = expect(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == a);
	CHECK(event->status != 0);
	EQUAL(event->param.conn.private_data_len, length);
	CHECK(!length || !memcmp(event->param.conn.private_data, why, length));
	EQUAL(rdma_ack_cm_event(event), 0);
	COMPLETES(a->recv_cq, 77, IBV_WC_WR_FLUSH_ERR, 0);
	EQUAL(rdma_destroy_id(b), 0);
	drop(a);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

/* Holds a port of loopback (in network order) at which a listener was: no other process comes to listen there while a
   refusal is asked for. -1 where one was quicker. */
static int keep_port(int port)
{
	int keeper = socket(AF_INET, SOCK_STREAM, 0);

	NEED(keeper >= 0);
	if (bind(keeper, loopback(AF_INET, port), sizeof(struct sockaddr_in)) == 0)
		return keeper;
	NEED(errno == EADDRINUSE && close(keeper) == 0);
	return -1;
}

static void nobody_listens(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *a;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *event;
	int keeper;

	begin_case("nobody listens");
	for (;;) {
		struct rdma_cm_id *listener = listen_on(channel, AF_INET, 4);
		a = towards(channel, listener);
		int port = rdma_get_src_port(listener);
		EQUAL(rdma_destroy_id(listener), 0);
		if ((keeper = keep_port(port)) >= 0)
			break;
		EQUAL(rdma_destroy_id(a), 0);
	}
	give_qp(a);
	EQUAL(rdma_connect(a, &param), 0);
	event = expect(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status < 0);
	EQUAL(rdma_ack_cm_event(event), 0);
	drop(a);
	close(keeper);

	begin_case("an address without a route");
	struct rdma_cm_id *id;
	struct sockaddr_in6 nowhere = {.sin6_family = AF_INET6};
	inet_pton(AF_INET6, "2001:db8::1", &nowhere.sin6_addr);
	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&nowhere, 100), 0);
	NEED(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->id == id);
	/* A machine may have a route to everywhere; then there is no error to be had. */
	CHECK(event->event == RDMA_CM_EVENT_ADDR_ERROR ? event->status < 0 :
							 event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	EQUAL(rdma_ack_cm_event(event), 0);
	EQUAL(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

static void families(int family, const char *name)
{
	struct pair p;
	struct sockaddr *local, *peer;

	begin_case(name);
	pair_up(&p, (struct wishes){.family = family});
	local = rdma_get_local_addr(p.a.id);
	peer = rdma_get_peer_addr(p.a.id);
	EQUAL(local->sa_family, family);
	EQUAL(peer->sa_family, family);
	EQUAL(rdma_get_dst_port(p.a.id), rdma_get_src_port(p.listener));
	EQUAL(rdma_get_dst_port(p.b.id), rdma_get_src_port(p.a.id));
	EQUAL(p.a.qp->qp_num != p.b.qp->qp_num, 1);
	EQUAL(post_recv(&p.b, 1, 0, 100), 0);
	fill(p.a.buffer, 100, 5);
	EQUAL(post(&p.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 100, NULL, 0), 0);
	COMPLETES(p.b.recv_cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(holds(p.b.buffer, 100, 5));
	pair_down(&p);
}

/* Whether others can reach the machine: it has an address that is neither loopback nor link-local. */
static int has_other_addresses(void)
{
	struct ifaddrs *list = NULL;
	int found = 0;

	NEED(getifaddrs(&list) == 0);
	for (struct ifaddrs *one = list; one; one = one->ifa_next) {
		const struct sockaddr *addr = one->ifa_addr;

		if (!addr || !(one->ifa_flags & IFF_UP))
			continue;
		if (addr->sa_family == AF_INET) {
			uint32_t ip = ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);
			found |= ip >> 24 != 127 && ip >> 16 != 0xa9fe;
		} else if (addr->sa_family == AF_INET6) {
			const struct in6_addr *ip = &((const struct sockaddr_in6 *)addr)->sin6_addr;
			found |= !IN6_IS_ADDR_LOOPBACK(ip) && !IN6_IS_ADDR_LINKLOCAL(ip);
		}
	}
	freeifaddrs(list);
	return found;
}

static void ports_and_addresses(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *one = listen_on(channel, AF_INET, 1), *two = listen_on(channel, AF_INET, 1), *any;
	struct sockaddr_in wildcard = {.sin_family = AF_INET};

	begin_case("ephemeral ports");
	CHECK(rdma_get_src_port(one) != 0 && rdma_get_src_port(two) != 0);
	CHECK(rdma_get_src_port(one) != rdma_get_src_port(two));

	begin_case("an id on one address belongs to the device");
	CHECK(one->verbs != NULL && one->pd != NULL);
	EQUAL(one->port_num, 1);

	begin_case("an id on every address does not");
	NEED(rdma_create_id(channel, &any, channel, RDMA_PS_TCP) == 0);
	CHECK(any->context == channel && any->channel == channel && any->ps == RDMA_PS_TCP);
	EQUAL(any->qp_type, IBV_QPT_RC);
	EQUAL(rdma_bind_addr(any, (struct sockaddr *)&wildcard), 0);
	CHECK(any->verbs == NULL);
	EQUAL(rdma_listen(any, 0), 0);
	CHECK(rdma_get_src_port(any) != 0);
	EQUAL(rdma_destroy_id(any), 0);

	begin_case("an id that asks about a loopback address belongs to the device when it listens");
	NEED(rdma_create_id(channel, &any, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_bind_addr(any, loopback(AF_INET, 0)), 0);
	EQUAL(any->verbs == NULL, has_other_addresses());
	EQUAL(rdma_listen(any, 0), 0);
	CHECK(any->verbs != NULL && any->pd != NULL);
	EQUAL(rdma_destroy_id(any), 0);

	begin_case("an id that is to listen there does at once");
	int port = rdma_get_src_port(one);
	EQUAL(rdma_destroy_id(one), 0);
	NEED(rdma_create_id(channel, &one, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_bind_addr(one, loopback(AF_INET, port)), 0);
	CHECK(one->verbs != NULL && one->pd != NULL);
	EQUAL(rdma_listen(one, 1), 0);

	begin_case("a source address is bound");
	NEED(rdma_create_id(channel, &any, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_resolve_addr(any, loopback(AF_INET, 0), loopback(AF_INET, rdma_get_src_port(one)), 100), 0);
	expect_ack(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	struct sockaddr_in *local = (struct sockaddr_in *)rdma_get_local_addr(any);
	EQUAL(local->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	CHECK(any->verbs != NULL);
	EQUAL(rdma_destroy_id(any), 0);
	EQUAL(rdma_destroy_id(one), 0);
	EQUAL(rdma_destroy_id(two), 0);
	rdma_destroy_event_channel(channel);
}

enum { MANY = 12 };

static void backlog(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, MANY), *a[MANY], *b[MANY];
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	int requests = 0, established = 0;

	begin_case("requests wait in the backlog");
	for (int i = 0; i < MANY; i++) {
		a[i] = towards(channel, listener);
		give_qp(a[i]);
	}
	for (int i = 0; i < MANY; i++)
		EQUAL(rdma_connect(a[i], &param), 0);
	while (requests < MANY) {
		b[requests] = expect_ack(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		requests++;
	}
	for (int i = 0; i < MANY; i++) {
		give_qp(b[i]);
		EQUAL(rdma_accept(b[i], &param), 0);
	}
	while (established < 2 * MANY) {
		expect_ack(channel, RDMA_CM_EVENT_ESTABLISHED);
		established++;
	}
	/* Requests come in any order: who belongs together is seen from the ports. */
	for (int i = 0; i < MANY; i++) {
		int peer = 0;
		while (peer < MANY && rdma_get_dst_port(b[peer]) != rdma_get_src_port(a[i]))
			peer++;
		NEED(peer < MANY);
		EQUAL(rdma_disconnect(i % 2 ? a[i] : b[peer]), 0);
	}
	for (int i = 0; i < MANY; i++)
		both_disconnected(channel);
	for (int i = 0; i < MANY; i++) {
		drop(a[i]);
		drop(b[i]);
	}

	begin_case("a listener goes with requests nobody saw");
	a[0] = towards(channel, listener);
	give_qp(a[0]);
	EQUAL(rdma_connect(a[0], &param), 0);
	usleep(50000);
	EQUAL(rdma_destroy_id(listener), 0);
	struct rdma_cm_event *event;
	NEED(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->id == a[0] && event->event != RDMA_CM_EVENT_ESTABLISHED);
	EQUAL(rdma_ack_cm_event(event), 0);
	drop(a[0]);
	rdma_destroy_event_channel(channel);
}

static void non_blocking_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 4), *id;
	struct rdma_cm_event *event;

	begin_case("a non-blocking event channel");
	NEED(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(!readable(channel->fd, 20));
	MINUS_ONE(rdma_get_cm_event(channel, &event), EAGAIN);
	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_resolve_addr(id, NULL, loopback(AF_INET, rdma_get_src_port(listener)), 100), 0);
	CHECK(readable(channel->fd, PATIENCE));
	EQUAL(rdma_get_cm_event(channel, &event), 0);
	EQUAL(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	EQUAL(rdma_ack_cm_event(event), 0);
	CHECK(!readable(channel->fd, 20));
	MINUS_ONE(rdma_get_cm_event(channel, &event), EAGAIN);

	begin_case("events of a destroyed id are gone");
	EQUAL(rdma_resolve_route(id, 100), 0);
	CHECK(readable(channel->fd, PATIENCE));
	EQUAL(rdma_destroy_id(id), 0);
	CHECK(!readable(channel->fd, 20));
	MINUS_ONE(rdma_get_cm_event(channel, &event), EAGAIN);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

/* A connection over a non-blocking channel, driven by poll() alone, as servers do it. */
static void driven_by_poll(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 4), *a = towards(channel, listener), *b = NULL;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	int established = 0;
	double end = now() + PATIENCE / 1e3;

	begin_case("a connection driven by poll alone");
	NEED(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	give_qp(a);
	EQUAL(rdma_connect(a, &param), 0);
	while (established < 2 && now() < end) {
		struct rdma_cm_event *event;
		if (!readable(channel->fd, PATIENCE))
			continue;
		if (rdma_get_cm_event(channel, &event))
			continue;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			b = event->id;
			give_qp(b);
			EQUAL(rdma_accept(b, &param), 0);
		} else if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
			established++;
		}
		EQUAL(rdma_ack_cm_event(event), 0);
	}
	EQUAL(established, 2);
	drop(a);
	NEED(b);
	drop(b);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

static void migrating(void)
{
	struct rdma_event_channel *one = rdma_create_event_channel(), *two = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(one, AF_INET, 4), *id;
	struct rdma_cm_event *event;

	begin_case("an id moves with its events");
	NEED(rdma_create_id(one, &id, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_resolve_addr(id, NULL, loopback(AF_INET, rdma_get_src_port(listener)), 100), 0);
	EQUAL(rdma_migrate_id(id, two), 0);
	CHECK(id->channel == two);
	CHECK(!readable(one->fd, 20));
	CHECK(readable(two->fd, PATIENCE));
	CHECK(expect_ack(two, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	EQUAL(rdma_resolve_route(id, 100), 0);
	expect_ack(two, RDMA_CM_EVENT_ROUTE_RESOLVED);

	begin_case("an id becomes synchronous and asynchronous again");
	EQUAL(rdma_migrate_id(id, NULL), 0);
	CHECK(id->channel != two && id->channel != one && id->channel != NULL);
	MINUS_ONE(rdma_migrate_id(id, NULL), EINVAL);
	EQUAL(rdma_migrate_id(id, one), 0);
	CHECK(id->channel == one);
	NEED(fcntl(one->fd, F_SETFL, O_NONBLOCK) == 0);
	MINUS_ONE(rdma_get_cm_event(one, &event), EAGAIN);
	EQUAL(rdma_destroy_id(id), 0);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(one);
	rdma_destroy_event_channel(two);
}

static void disconnecting(void)
{
	struct pair p;

	begin_case("the passive side disconnects");
	pair_up(&p, (struct wishes){});
	EQUAL(rdma_disconnect(p.b.id), 0);
	both_disconnected(p.channel);
	end_case();

	begin_case("both sides disconnect");
	pair_down(&p);
	pair_up(&p, (struct wishes){});
	EQUAL(rdma_disconnect(p.a.id), 0);
	EQUAL(rdma_disconnect(p.b.id), 0);
	both_disconnected(p.channel);
	NEED(fcntl(p.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	struct rdma_cm_event *event;
	usleep(20000);
	MINUS_ONE(rdma_get_cm_event(p.channel, &event), EAGAIN);
	pair_down(&p);

	begin_case("a queue pair destroyed is a disconnect to the other side");
	pair_up(&p, (struct wishes){});
	rdma_destroy_qp(p.a.id);
	CHECK(p.a.id->qp == NULL);
	struct rdma_cm_id *id = expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	if (id == p.a.id)
		id = expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(id == p.b.id);
	pair_down(&p);

	begin_case("an id destroyed is a disconnect to the other side");
	pair_up(&p, (struct wishes){});
	struct ibv_qp *qp = p.a.id->qp;
	EQUAL(rdma_destroy_id(p.a.id), 0);
	CHECK(expect_ack(p.channel, RDMA_CM_EVENT_DISCONNECTED) == p.b.id);
	EQUAL(ibv_destroy_qp(qp), 0);
	NEED(rdma_create_id(p.channel, &p.a.id, NULL, RDMA_PS_TCP) == 0);
	pair_down(&p);
}

static struct rdma_cm_id *leaving;
static volatile int left;

static void *destroy_it(void *unused)
{
	(void)unused;
	EQUAL(rdma_destroy_id(leaving), 0);
	left = 1;
	return NULL;
}

static void acknowledging(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 4);
	struct rdma_cm_event *event;
	pthread_t thread;

	begin_case("destroying an id waits for its events");
	NEED(rdma_create_id(channel, &leaving, NULL, RDMA_PS_TCP) == 0);
	EQUAL(rdma_resolve_addr(leaving, NULL, loopback(AF_INET, rdma_get_src_port(listener)), 100), 0);
	event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(pthread_create(&thread, NULL, destroy_it, NULL) == 0);
	usleep(50000);
	CHECK(!left);
	EQUAL(rdma_ack_cm_event(event), 0);
	pthread_join(thread, NULL);
	CHECK(left);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

static char port_text[16];

static void *synchronous_client(void *unused)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = small_qp();
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	static char text[64] = "from the client";

	(void)unused;
	NEED(rdma_getaddrinfo("127.0.0.1", port_text, &hints, &info) == 0);
	EQUAL(info->ai_family, AF_INET);
	EQUAL(info->ai_qp_type, IBV_QPT_RC);
	EQUAL(info->ai_dst_len, sizeof(struct sockaddr_in));
	NEED(rdma_create_ep(&id, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	CHECK(id->verbs && id->qp && id->pd && id->send_cq && id->recv_cq && id->send_cq_channel &&
	      id->recv_cq_channel);
	NEED(mr = rdma_reg_msgs(id, text, sizeof(text)));
	NEED(rdma_connect(id, NULL) == 0);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	EQUAL(rdma_post_send(id, text, text, sizeof(text), mr, IBV_SEND_SIGNALED), 0);
	EQUAL(rdma_get_send_comp(id, &wc), 1);
	EQUAL(wc.status, IBV_WC_SUCCESS);
	EQUAL(wc.wr_id, (uintptr_t)text);
	EQUAL(rdma_disconnect(id), 0);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	EQUAL(rdma_disconnect(id), 0);
	EQUAL(rdma_dereg_mr(mr), 0);
	rdma_destroy_ep(id);
	return NULL;
}

static void synchronous(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = small_qp();
	struct rdma_cm_id *listener, *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t thread;
	static char text[64];

	begin_case("endpoints and synchronous ids");
	NEED(rdma_getaddrinfo("127.0.0.1", "0", &hints, &info) == 0);
	EQUAL(info->ai_flags, RAI_PASSIVE);
	EQUAL(info->ai_src_len, sizeof(struct sockaddr_in));
	NEED(rdma_create_ep(&listener, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	EQUAL(rdma_listen(listener, 4), 0);
	snprintf(port_text, sizeof(port_text), "%d", ntohs(rdma_get_src_port(listener)));
	NEED(pthread_create(&thread, NULL, synchronous_client, NULL) == 0);
	NEED(rdma_get_request(listener, &id) == 0);
	CHECK(id != listener && id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(id->channel != listener->channel);
	NEED(mr = rdma_reg_msgs(id, text, sizeof(text)));
	EQUAL(rdma_post_recv(id, text, text, sizeof(text), mr), 0);
	EQUAL(rdma_accept(id, NULL), 0);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	EQUAL(rdma_get_recv_comp(id, &wc), 1);
	EQUAL(wc.status, IBV_WC_SUCCESS);
	EQUAL(wc.byte_len, sizeof(text));
	CHECK(!strcmp(text, "from the client"));
	EQUAL(rdma_disconnect(id), 0);
	pthread_join(thread, NULL);
	EQUAL(rdma_dereg_mr(mr), 0);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);

	begin_case("a synchronous connect that is refused");
	int keeper = keep_port(htons((in_port_t)atoi(port_text)));
	if (keeper < 0) {
		/* Somebody is there already: another port, which is not listened on. */
		struct sockaddr_in at;
		socklen_t length = sizeof(at);
		NEED((keeper = keep_port(0)) >= 0 && getsockname(keeper, (struct sockaddr *)&at, &length) == 0);
		snprintf(port_text, sizeof(port_text), "%d", ntohs(at.sin_port));
	}
	hints.ai_flags = 0;
	NEED(rdma_getaddrinfo("127.0.0.1", port_text, &hints, &info) == 0);
	NEED(rdma_create_ep(&id, info, NULL, &init) == 0);
	rdma_freeaddrinfo(info);
	MINUS_ONE(rdma_connect(id, NULL), ECONNREFUSED);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
	close(keeper);
}

static void names(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST}, *info;

	begin_case("names and services");
	NEED(rdma_getaddrinfo("::1", "7471", &hints, &info) == 0);
	EQUAL(info->ai_family, AF_INET6);
	EQUAL(((struct sockaddr_in6 *)info->ai_dst_addr)->sin6_port, htons(7471));
	EQUAL(info->ai_port_space, RDMA_PS_TCP);
	CHECK(info->ai_next == NULL && info->ai_src_addr == NULL);
	rdma_freeaddrinfo(info);
	NEED(rdma_getaddrinfo("127.0.0.1", NULL, NULL, &info) == 0);
	EQUAL(info->ai_family, AF_INET);
	rdma_freeaddrinfo(info);

	begin_case("addresses out of the hints");
	hints = (struct rdma_addrinfo){.ai_family = AF_INET,
				       .ai_port_space = RDMA_PS_TCP,
				       .ai_qp_type = IBV_QPT_RC,
				       .ai_dst_addr = loopback(AF_INET, 5),
				       .ai_dst_len = sizeof(struct sockaddr_in),
				       .ai_src_addr = loopback(AF_INET, 6),
				       .ai_src_len = sizeof(struct sockaddr_in)};
	NEED(rdma_getaddrinfo(NULL, NULL, &hints, &info) == 0);
	CHECK(info->ai_dst_addr != hints.ai_dst_addr &&
	      !memcmp(info->ai_dst_addr, hints.ai_dst_addr, hints.ai_dst_len));
	CHECK(!memcmp(info->ai_src_addr, hints.ai_src_addr, hints.ai_src_len));
	rdma_freeaddrinfo(info);
}

/* A program that makes its queue pairs by hand and names them by number. */
static void by_number(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 4), *a = towards(channel, listener), *b;
	struct ibv_cq *cq = ibv_create_cq(a->verbs, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = small_qp();
	struct ibv_qp_attr attr = {};
	struct ibv_qp *qa, *qb;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	int mask = -1;

	begin_case("queue pairs made by hand");
	init.send_cq = init.recv_cq = cq;
	NEED(qa = ibv_create_qp(a->pd, &init));
	attr.qp_state = IBV_QPS_INIT;
	EQUAL(rdma_init_qp_attr(a, &attr, &mask), 0);
	CHECK(mask & IBV_QP_STATE);
	EQUAL(ibv_modify_qp(qa, &attr, mask), 0);
	MINUS_ONE(rdma_connect(a, &param), EINVAL);
	param.qp_num = qa->qp_num;
	EQUAL(rdma_connect(a, &param), 0);
	b = expect_ack(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	NEED(qb = ibv_create_qp(b->pd, &init));
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		attr.qp_state = state;
		EQUAL(rdma_init_qp_attr(b, &attr, &mask), 0);
		EQUAL(ibv_modify_qp(qb, &attr, mask), 0);
	}
	param.qp_num = qb->qp_num;
	EQUAL(rdma_accept(b, &param), 0);
	expect_ack(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect_ack(channel, RDMA_CM_EVENT_ESTABLISHED);
	EQUAL(ibv_query_qp(qa, &attr, IBV_QP_STATE, &init), 0);
	EQUAL(attr.qp_state, IBV_QPS_RTS);
	EQUAL(rdma_disconnect(a), 0);
	both_disconnected(channel);
	EQUAL(rdma_destroy_id(a), 0);
	EQUAL(rdma_destroy_id(b), 0);
	EQUAL(ibv_destroy_qp(qa), 0);
	EQUAL(ibv_destroy_qp(qb), 0);
	EQUAL(ibv_destroy_cq(cq), 0);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

static void shared_queue_of_an_id(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 4), *id = towards(channel, listener);
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};

	begin_case("an id's shared receive queue");
	EQUAL(rdma_create_srq(id, NULL, &srq), 0);
	CHECK(id->srq && id->srq->pd == id->pd);
	give_qp(id);
	CHECK(id->qp->srq == id->srq);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	CHECK(id->srq == NULL);
	EQUAL(rdma_destroy_id(id), 0);
	EQUAL(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	static const int lengths[] = {0, 1, 4, 196, 254, 255};

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		private_data(lengths[i]);
	rejecting(0);
	rejecting(148);
	rejecting(255);
	nobody_listens();
	families(AF_INET, "IPv4");
	families(AF_INET6, "IPv6");
	ports_and_addresses();
	backlog();
	non_blocking_channel();
	driven_by_poll();
	migrating();
	disconnecting();
	acknowledging();
	synchronous();
	names();
	by_number();
	shared_queue_of_an_id();
	end_program();
}
