/* Queue pairs that the connection manager connects. */
#include "queue_pairs.h"

#include <arpa/inet.h>
#include <errno.h>

/* An event is waited for as long as the connection manager takes; a test that hangs is ended from outside. */
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;

static struct sockaddr_in address(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(options.port)};

	MUST(inet_pton(AF_INET, options.address, &a.sin_addr) == 1, "address %s", options.address);
	return a;
}

static struct rdma_conn_param parameters(void *private_data, uint8_t length)
{
	return (struct rdma_conn_param){.private_data = private_data,
					.private_data_len = length,
					.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};
}

/* --- the server */

void cm_listen(void)
{
	struct sockaddr_in a = address();

	MUST((events = rdma_create_event_channel()), "rdma_create_event_channel");
	MUST(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	MUST(rdma_bind_addr(listener, (struct sockaddr *)&a) == 0, "rdma_bind_addr");
	MUST(rdma_listen(listener, (int)options.count) == 0, "rdma_listen");
}

static void answer_request(const struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct ibv_qp_init_attr init;
	uint32_t connection;

	MUST(event->param.conn.private_data_len >= sizeof(connection), "a request without its number");
	memcpy(&connection, event->param.conn.private_data, sizeof(connection));
	objects_make(id->verbs);
	MUST(connection < options.count && !crowd.qps[connection], "a request for connection %u", connection);
	init = qp_attributes();
	MUST(rdma_create_qp(id, crowd.pd, &init) == 0, "rdma_create_qp %u", connection);
	qp_ready(connection, id->qp);
	struct target here = {(uintptr_t)crowd.blocks, crowd.mr->rkey};
	struct rdma_conn_param param = parameters(&here, sizeof(here));
	MUST(rdma_accept(id, &param) == 0, "rdma_accept %u", connection);
}

void cm_accept(void)
{
	for (uint32_t established = 0; established < options.count;) {
		struct rdma_cm_event *event;
		MUST(rdma_get_cm_event(events, &event) == 0, "rdma_get_cm_event");
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			answer_request(event);
		else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
			established++;
		else
			die("%s, status %d, after %u connections", rdma_event_str(event->event), event->status,
			    established);
		rdma_ack_cm_event(event);
	}
}

/* --- the client */

/* Takes one event for each connection; `each`, if any, becomes the time until then. */
static void take_events(enum rdma_cm_event_type type, uint64_t *each)
{
	for (uint32_t taken = 0; taken < options.count; taken++) {
		struct rdma_cm_event *event;
		MUST(rdma_get_cm_event(events, &event) == 0, "rdma_get_cm_event");
		MUST(event->event == type, "%s, status %d, after %u of %u: %s", rdma_event_str(event->event),
		     event->status, taken, options.count, rdma_event_str(type));
		if (each) {
			uint32_t connection = (uint32_t)(uintptr_t)event->id->context;
			each[connection] = now_ns() - each[connection];
			MUST(event->param.conn.private_data_len >= sizeof(crowd.there), "an answer without a target");
			memcpy(&crowd.there, event->param.conn.private_data, sizeof(crowd.there));
		}
		rdma_ack_cm_event(event);
	}
}

void cm_prepare(void)
{
	struct sockaddr_in a = address();
	struct rdma_cm_id **ids = room(options.count * sizeof(*ids));

	MUST((events = rdma_create_event_channel()), "rdma_create_event_channel");
	for (uint32_t i = 0; i < options.count; i++) {
		MUST(rdma_create_id(events, &ids[i], (void *)(uintptr_t)i, RDMA_PS_TCP) == 0, "rdma_create_id");
		MUST(rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&a, 2000) == 0, "rdma_resolve_addr");
	}
	take_events(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	for (uint32_t i = 0; i < options.count; i++)
		MUST(rdma_resolve_route(ids[i], 2000) == 0, "rdma_resolve_route");
	take_events(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	objects_make(ids[0]->verbs);
	crowd.ids = ids;
	for (uint32_t i = 0; i < options.count; i++) {
		struct ibv_qp_init_attr init = qp_attributes();
		MUST(rdma_create_qp(ids[i], crowd.pd, &init) == 0, "rdma_create_qp %u", i);
		qp_ready(i, ids[i]->qp);
	}
}

void cm_connect(uint64_t *each, uint64_t *all)
{
	uint64_t start = now_ns();

	for (uint32_t i = 0; i < options.count; i++) {
		struct rdma_conn_param param = parameters(&i, sizeof(i));
		each[i] = now_ns();
		MUST(rdma_connect(crowd.ids[i], &param) == 0, "rdma_connect %u", i);
	}
	take_events(RDMA_CM_EVENT_ESTABLISHED, each);
	*all = now_ns() - start;
}
