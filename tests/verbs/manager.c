/* What cases need of the connection manager. */
#include "env.h"

struct sockaddr *address(int family, int port)
{
	static __thread struct sockaddr_storage storage[4];
	static __thread unsigned next;
	struct sockaddr_storage *at = &storage[next++ % 4];

	*at = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
	if (family == AF_INET6) {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)at;
		v6->sin6_port = (in_port_t)port;
		NEED(inet_pton(AF_INET6, env.address6, &v6->sin6_addr) == 1);
	} else {
		struct sockaddr_in *v4 = (struct sockaddr_in *)at;
		v4->sin_port = (in_port_t)port;
		NEED(inet_pton(AF_INET, env.address, &v4->sin_addr) == 1);
	}
	return (struct sockaddr *)at;
}

size_t address_length(const struct sockaddr *at)
{
	return at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double end = now() + ms / 1e3;
	int got;

	/* A storm of signals interrupts it again and again. */
	do
		got = poll(&p, 1, ms);
	while (got < 0 && errno == EINTR && now() < end);
	return got == 1 && (p.revents & POLLIN);
}

bool comes(int fd)
{
	return readable(fd, patience);
}

struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	if (!CHECKF(comes(channel->fd), "no event in time, %s was expected", rdma_event_str(type)))
		case_end();
	NEED(rdma_get_cm_event(channel, &event) == 0);
	if (!CHECKF(event->event == type, "the event is %s (status %d), not %s", rdma_event_str(event->event),
		    event->status, rdma_event_str(type)))
		case_end();
	return event;
}

struct rdma_cm_id *expected(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = expect(channel, type);
	struct rdma_cm_id *id = event->id;

	NEED(rdma_ack_cm_event(event) == 0);
	return id;
}

int refused_by(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	NEED(comes(channel->fd));
	NEED(rdma_get_cm_event(channel, &event) == 0);
	CHECKF(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_CONNECT_ERROR ||
		       event->event == RDMA_CM_EVENT_UNREACHABLE,
	       "the event is %s", rdma_event_str(event->event));
	if (env.weft)
		EQ(event->event, RDMA_CM_EVENT_REJECTED);
	int status = event->status;
	NEED(rdma_ack_cm_event(event) == 0);
	return status;
}

struct rdma_cm_id *new_id(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

struct rdma_cm_id *listen_on(struct rdma_event_channel *channel, int family, int backlog)
{
	struct rdma_cm_id *id = new_id(channel);

	NEED(rdma_bind_addr(id, address(family, 0)) == 0);
	NEED(rdma_listen(id, backlog) == 0);
	return id;
}

int keep_port(int port)
{
	struct sockaddr *at = address(AF_INET, port);
	int keeper = socket(AF_INET, SOCK_STREAM, 0);

	NEED(keeper >= 0);
	/* An address that is not the kernel's is this process's alone: nobody else can have the port. */
	if (bind(keeper, at, (socklen_t)address_length(at)) == 0 || errno == EADDRNOTAVAIL)
		return keeper;
	NEED(errno == EADDRINUSE && close(keeper) == 0);
	return -1;
}

struct rdma_cm_id *towards(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id = new_id(channel);
	int family = rdma_get_local_addr(listener)->sa_family;

	NEED(rdma_resolve_addr(id, NULL, address(family, rdma_get_src_port(listener)), patience) == 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(rdma_resolve_route(id, patience) == 0);
	expected(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

void half(struct pair *p)
{
	*p = (struct pair){};
	NEED(p->events = rdma_create_event_channel());
	p->listener = listen_on(p->events, AF_INET, 8);
	p->a.id = towards(p->events, p->listener);
	active_qp(p);
}

void active_qp(struct pair *p)
{
	struct wish w = {};

	side_objects(&p->a, &w, false);
	struct ibv_qp_init_attr init = init_of(&p->a, &w);
	NEED(rdma_create_qp(p->a.id, p->a.pd, &init) == 0);
	p->a.qp = p->a.id->qp;
}

void passive_qp(struct pair *p)
{
	struct wish w = {};

	side_objects(&p->b, &w, true);
	struct ibv_qp_init_attr init = init_of(&p->b, &w);
	NEED(rdma_create_qp(p->b.id, p->b.pd, &init) == 0);
	p->b.qp = p->b.id->qp;
}
