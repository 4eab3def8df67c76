/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Time from rdma_connect to RDMA_CM_EVENT_ESTABLISHED, one connection after another. An ordinary program on librdmacm:
 * it knows nothing of Weft.
 *
 *   cm_connect [-m] PORT                    serves until a client says that it was the last connection
 *   cm_connect [-m] PORT ADDRESS COUNT      prints the microseconds of each connection, one a line
 *
 * With -m, at both ends, the time is that until the answer to a first message; completions are polled for.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/rdma_cma.h>

static const int RESOLVE_TIMEOUT_MS = 2000;
static const char LAST[] = "last";

static void die(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(call) do { if (call) die(#call); } while (0)

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static int message;

/* The next event; it has to be the expected one. The caller acknowledges it. */
static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(rdma_get_cm_event(channel, &event));
	if (event->event != type) {
		fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void create_qp(struct rdma_cm_id *id)
{
	static struct ibv_pd *pd;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	if (!pd) {
		pd = ibv_alloc_pd(id->verbs);
		cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
		if (!pd || !cq)
			die("ibv_alloc_pd, ibv_create_cq");
	}
	attr.send_cq = attr.recv_cq = cq;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_qp(id, pd, &attr));
	if (message)
		CHECK(ibv_post_recv(id->qp, &wr, &bad));
}

static void post_empty_send(struct rdma_cm_id *id)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	CHECK(ibv_post_send(id->qp, &wr, &bad));
}

/* So many completions, of whatever kind. */
static void complete(int count)
{
	struct ibv_wc wc;
	int n;

	while (count) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS)) {
			fprintf(stderr, "completion: %s\n", n < 0 ? "none" : ibv_wc_status_str(wc.status));
			exit(1);
		}
		count -= n;
	}
}

static void answer(struct rdma_cm_id *id)
{
	complete(1);
	post_empty_send(id);
	complete(1);
}

static void destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id));
}

/* The end of one connection and the request of the next come in any order. */
static void serve(struct sockaddr_in *address)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener, *id;
	enum rdma_cm_event_type type;
	int open = 0, last = 0;

	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)address));
	CHECK(rdma_listen(listener, 16));
	while (!last || open) {
		CHECK(rdma_get_cm_event(channel, &event));
		id = event->id;
		type = event->event;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			last |= event->param.conn.private_data_len >= sizeof(LAST) &&
				!memcmp(event->param.conn.private_data, LAST, sizeof(LAST));
		rdma_ack_cm_event(event);
		switch (type) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			create_qp(id);
			CHECK(rdma_accept(id, &param));
			open++;
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id);
			destroy(id);
			open--;
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			if (message)
				answer(id);
			break;
		default:
			fprintf(stderr, "%s\n", rdma_event_str(type));
			exit(1);
		}
	}
	CHECK(rdma_destroy_id(listener));
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double connect_once(struct sockaddr_in *address, int last)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_id *id;
	double start, end;

	if (last) {
		param.private_data = LAST;
		param.private_data_len = sizeof(LAST);
	}
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)address, RESOLVE_TIMEOUT_MS));
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(rdma_resolve_route(id, RESOLVE_TIMEOUT_MS));
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED));
	create_qp(id);

	start = now_us();
	CHECK(rdma_connect(id, &param));
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED));
	if (message) {
		post_empty_send(id);
		complete(2);
	}
	end = now_us();

	CHECK(rdma_disconnect(id));
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED));
	destroy(id);
	return end - start;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int count;

	message = argc > 1 && !strcmp(argv[1], "-m");
	argc -= message;
	argv += message;
	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: cm_connect [-m] PORT [ADDRESS COUNT]\n");
		return 2;
	}
	address.sin_port = htons(atoi(argv[1]));
	channel = rdma_create_event_channel();
	if (!channel)
		die("rdma_create_event_channel");
	if (argc == 2) {
		serve(&address);
		return 0;
	}
	if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
		die("address");
	for (count = atoi(argv[3]); count > 0; count--)
		printf("%.3f\n", connect_once(&address, count == 1));
	return 0;
}
