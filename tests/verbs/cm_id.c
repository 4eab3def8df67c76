/* Ids of the connection manager: ports, addresses, routes, options, devices. */
#include "env.h"

#include <ifaddrs.h>
#include <net/if.h>

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
	EQ(id->qp_type, IBV_QPT_RC);
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
	struct rdma_cm_id *id = new_id(channel);
	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience) == 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!readable(channel->fd, QUIET));
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	EQ(rdma_destroy_id(id), 0);
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

static bool is_loopback(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
	return addr->sa_family == AF_INET && ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
}

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
	/* No device need own a loopback address; an id that listens there belongs to one all the same. */
	if (!is_loopback(rdma_get_local_addr(id)))
		NEED(id->verbs);
	EQ(rdma_listen(id, 1), 0);
	NEED(id->verbs && id->pd);
	CHECK(strcmp(ibv_get_device_name(id->verbs->device), ibv_get_device_name(env.ctx->device)) == 0);
	EQ(id->port_num, PORT);
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
	CHECK(id->verbs == NULL);
	CHECK(rdma_get_src_port(id) != 0);
	EQ(rdma_listen(id, 0), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("bind.ports-that-were-not-asked-for-differ")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *one = listen_on(channel, AF_INET, 1), *two = listen_on(channel, AF_INET, 1);

	CHECK(rdma_get_src_port(one) != rdma_get_src_port(two));
	EQ(rdma_destroy_id(one), 0);
	EQ(rdma_destroy_id(two), 0);
	rdma_destroy_event_channel(channel);
}

/* Whether others can reach the machine: it has an address that is neither loopback nor link-local. */
static bool has_other_addresses(void)
{
	struct ifaddrs *list = NULL;
	bool found = false;

	NEED(getifaddrs(&list) == 0);
	for (struct ifaddrs *one = list; one; one = one->ifa_next) {
		const struct sockaddr *addr = one->ifa_addr;
		if (!addr || !(one->ifa_flags & IFF_UP) || is_loopback(addr))
			continue;
		if (addr->sa_family == AF_INET)
			found |= ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 16 != 0xa9fe;
		else if (addr->sa_family == AF_INET6)
			found |= !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)addr)->sin6_addr);
	}
	freeifaddrs(list);
	return found;
}

/* A program that binds to a loopback address without a port asks whose address it is: the device's only where it has no
   better one. One that names a port is about to listen there, and the device has it. */
CASE("bind.a-loopback-address-is-the-devices-for-who-listens")
{
	need_cm();
	need_weft();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *asks = new_id(channel), *listens = new_id(channel);

	if (!is_loopback(address(AF_INET, 0)))
		SKIP("the run is not on a loopback address");
	EQ(rdma_bind_addr(asks, address(AF_INET, 0)), 0);
	EQ(asks->verbs == NULL, has_other_addresses());
	EQ(rdma_listen(asks, 0), 0);
	CHECK(asks->verbs && asks->pd);
	int port = rdma_get_src_port(asks);
	EQ(rdma_destroy_id(asks), 0);
	EQ(rdma_bind_addr(listens, address(AF_INET, port)), 0);
	CHECK(listens->verbs && listens->pd);
	EQ(rdma_listen(listens, 1), 0);
	EQ(rdma_destroy_id(listens), 0);
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

	EQ(rdma_resolve_addr(id, NULL, address((int)family, htons(7471)), patience), 0);
	CHECK(expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	NEED(id->verbs);
	EQ(rdma_get_dst_port(id), htons(7471));
	EQ(rdma_get_local_addr(id)->sa_family, family);
	EQ(rdma_get_peer_addr(id)->sa_family, family);
	EQ(rdma_resolve_route(id, patience), 0);
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

	EQ(rdma_resolve_addr(id, address(AF_INET, 0), address(AF_INET, htons(7471)), patience), 0);
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs);
	struct sockaddr_in *source = (struct sockaddr_in *)rdma_get_local_addr(id);
	SAME(&source->sin_addr, &((struct sockaddr_in *)address(AF_INET, 0))->sin_addr, 4);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("resolve.an-address-without-a-route-is-an-error-event")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct sockaddr_in6 nowhere = {.sin6_family = AF_INET6};
	struct rdma_cm_event *event;

	NEED(inet_pton(AF_INET6, "2001:db8::1", &nowhere.sin6_addr) == 1);
	EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&nowhere, 100), 0);
	NEED(comes(channel->fd));
	NEED(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->id == id);
	/* A machine may have a route to everywhere; then there is no error to be had. */
	CHECK(event->event == RDMA_CM_EVENT_ADDR_ERROR ? event->status < 0 : event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	EQ(rdma_ack_cm_event(event), 0);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("resolve.route-before-address-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	FAILS(rdma_resolve_route(id, patience), EINVAL);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("resolve.destroyed-while-it-runs")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();

	for (int i = 0; i < 20; i++) {
		struct rdma_cm_id *id = new_id(channel);
		EQ(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience), 0);
		EQ(rdma_destroy_id(id), 0);
	}
	/* No event of a destroyed id is left. */
	CHECK(!readable(channel->fd, QUIET));
	rdma_destroy_event_channel(channel);
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

CASE("id.belongs-to-the-device-of-its-address")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);

	NEED(listener->verbs && id->verbs);
	EQ(strcmp(ibv_get_device_name(listener->verbs->device), ibv_get_device_name(env.ctx->device)), 0);
	EQ(strcmp(ibv_get_device_name(id->verbs->device), ibv_get_device_name(env.ctx->device)), 0);
	EQ(rdma_destroy_id(id), 0);
	EQ(rdma_destroy_id(listener), 0);
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
