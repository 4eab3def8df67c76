/* Events of the connection manager, and ids that change their channel. */
#include "env.h"

static void acknowledge(void *of)
{
	rdma_ack_cm_event(of);
}

CASE("event.destroying-an-id-waits-for-the-acknowledgement")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct later later = {.acknowledge = acknowledge};

	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience) == 0);
	later.of = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	acknowledge_later(&later);
	EQ(rdma_destroy_id(id), 0);
	CHECK(was_waited_for(&later));
	rdma_destroy_event_channel(channel);
}

CASE("event.channel-is-readable-while-one-waits")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);

	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience) == 0);
	NEED(comes(channel->fd));
	NEED(readable(channel->fd, 0));
	expected(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!readable(channel->fd, QUIET));
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("event.of-a-destroyed-id-is-gone")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_cm_event *event;

	NEED(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience) == 0);
	NEED(comes(channel->fd));
	EQ(rdma_destroy_id(id), 0);
	CHECK(!readable(channel->fd, QUIET));
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	rdma_destroy_event_channel(channel);
}

static void *wait_for_good(void *channel)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	return NULL;
}

CASE("event.a-channel-is-destroyed-under-a-thread-that-waits")
{
	need_cm();
	struct pair p;
	pthread_t thread;
	struct rdma_event_channel *channel = rdma_create_event_channel();

	pair_up(&p, (struct wish){});
	NEED(pthread_create(&thread, NULL, wait_for_good, channel) == 0);
	sleep_ms(20);
	rdma_destroy_event_channel(channel);
	/* The thread stays where it is, as rping's does, and is in nobody's way. */
	for (int i = 0; i < 10; i++) {
		NEED(ibv_req_notify_cq(p.b.rcq, 0) == 0);
		NEED(post_recv(&p.b, 1, 0, 64) == 0);
		NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 64) == 0);
		WORKS(p.a.scq, 2);
		take_event(&p.b, p.b.rcq);
		WORKS(p.b.rcq, 1);
	}
	pair_down(&p);
}

CASE("migrate.an-id-takes-its-events-along")
{
	need_cm();
	struct rdma_event_channel *one = rdma_create_event_channel(), *two = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(one);

	EQ(rdma_migrate_id(id, two), 0);
	CHECK(id->channel == two);
	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience) == 0);
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

	NEED(rdma_resolve_addr(id, NULL, address(AF_INET, htons(7471)), patience) == 0);
	NEED(comes(one->fd));
	EQ(rdma_migrate_id(id, two), 0);
	CHECK(id->channel == two);
	CHECK(!readable(one->fd, QUIET));
	CHECK(expected(two, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	EQ(rdma_resolve_route(id, patience), 0);
	CHECK(expected(two, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(one);
	rdma_destroy_event_channel(two);
}

CASE("migrate.to-no-channel-and-back")
{
	need_cm();
	struct rdma_event_channel *one = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(one);
	struct rdma_cm_event *event;

	EQ(rdma_migrate_id(id, NULL), 0);
	CHECK(id->channel && id->channel != one);
	if (env.weft)
		FAILS(rdma_migrate_id(id, NULL), EINVAL);
	EQ(rdma_migrate_id(id, one), 0);
	CHECK(id->channel == one);
	NEED(fcntl(one->fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(rdma_get_cm_event(one, &event), EAGAIN);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(one);
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
