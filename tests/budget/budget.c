/* Calls of the verbs that every message takes, each many times, between marks that callgrind sees: what is counted is
 * what the calling thread did in that call alone. Both ends are in this process, and this thread polls both.
 *
 *     budget [ADDRESS]
 *
 * Each dump of callgrind's has the name of a call; stdout has a line for each: its name, of how many messages it was
 * counted, and how often it was made for them: a poll that finds nothing is made again.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <valgrind/callgrind.h>

enum { TIMES = 400, LENGTH = 64, DEPTH = 16 };

static void need(bool is_so, const char *what)
{
	if (!is_so) {
		perror(what);
		exit(1);
	}
}

struct side {
	struct rdma_cm_id *id;
	struct ibv_cq *scq, *rcq;
	struct ibv_mr *mr;
	uint8_t octets[4096];
};

static struct rdma_event_channel *events;

static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	need(rdma_get_cm_event(events, &event) == 0, "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	struct rdma_cm_id *id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static void objects(struct side *side)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(side->id->verbs);

	need(channel, "ibv_create_comp_channel");
	side->scq = ibv_create_cq(side->id->verbs, 4 * DEPTH, NULL, NULL, 0);
	side->rcq = ibv_create_cq(side->id->verbs, 4 * DEPTH, NULL, channel, 0);
	need(side->scq && side->rcq, "ibv_create_cq");
	struct ibv_qp_init_attr attr = {
		.send_cq = side->scq,
		.recv_cq = side->rcq,
		.qp_type = IBV_QPT_RC,
		.cap = {DEPTH, DEPTH, 1, 1, LENGTH},
	};
	need(rdma_create_qp(side->id, NULL, &attr) == 0, "rdma_create_qp");
	side->mr = ibv_reg_mr(side->id->pd, side->octets, sizeof(side->octets), IBV_ACCESS_LOCAL_WRITE);
	need(side->mr, "ibv_reg_mr");
}

static void connected(struct side *a, struct side *b, const char *address)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct rdma_cm_id *listener;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	need(inet_pton(AF_INET, address, &at.sin_addr) == 1, "the address");
	events = rdma_create_event_channel();
	need(events, "rdma_create_event_channel");
	need(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	need(rdma_bind_addr(listener, (struct sockaddr *)&at) == 0, "rdma_bind_addr");
	need(rdma_listen(listener, 1) == 0, "rdma_listen");
	at.sin_port = rdma_get_src_port(listener);
	need(rdma_create_id(events, &a->id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	need(rdma_resolve_addr(a->id, NULL, (struct sockaddr *)&at, 2000) == 0, "rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	need(rdma_resolve_route(a->id, 2000) == 0, "rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	objects(a);
	need(rdma_connect(a->id, &param) == 0, "rdma_connect");
	b->id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	objects(b);
	need(rdma_accept(b->id, &param) == 0, "rdma_accept");
	expect(RDMA_CM_EVENT_ESTABLISHED);
	expect(RDMA_CM_EVENT_ESTABLISHED);
}

/* --- the calls */

static int post_recv(struct side *side)
{
	struct ibv_sge sge = {(uintptr_t)side->octets, LENGTH, side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(side->id->qp, &wr, &bad);
}

static int post_send(struct side *side)
{
	struct ibv_sge sge = {(uintptr_t)side->octets, LENGTH, side->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(side->id->qp, &wr, &bad);
}

static int poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found = ibv_poll_cq(cq, 1, &wc);

	need(found == 0 || (found == 1 && wc.status == IBV_WC_SUCCESS), "a completion");
	return found;
}

static int notify(struct ibv_cq *cq)
{
	return ibv_req_notify_cq(cq, 0);
}

/* --- counting */

enum call { POST_RECV, POST_SEND, POLL_SEND, POLL_RECV, POLL_EMPTY, REQ_NOTIFY, CALLS };

static const char *const names[CALLS] = {
	"post_recv", "post_send", "poll_send", "poll_recv", "poll_empty", "req_notify",
};
static unsigned made[CALLS];

#define COUNTED(which, wanted, ...)                                                                                    \
	({                                                                                                             \
		if ((which) == (wanted))                                                                               \
			CALLGRIND_TOGGLE_COLLECT;                                                                      \
		int result_ = (__VA_ARGS__);                                                                           \
		if ((which) == (wanted)) {                                                                             \
			CALLGRIND_TOGGLE_COLLECT;                                                                      \
			made[which]++;                                                                                 \
		}                                                                                                      \
		result_;                                                                                               \
	})

/* One message from `a` to `b`, as a program has it that polls: of the calls it takes the wanted ones are counted. */
static void message(struct side *a, struct side *b, enum call wanted)
{
	need(COUNTED(POST_RECV, wanted, post_recv(b)) == 0, "ibv_post_recv");
	need(COUNTED(POLL_EMPTY, wanted, poll_one(b->rcq)) == 0, "an empty queue");
	if (wanted == REQ_NOTIFY)
		need(COUNTED(REQ_NOTIFY, wanted, notify(b->scq)) == 0, "ibv_req_notify_cq");
	need(COUNTED(POST_SEND, wanted, post_send(a)) == 0, "ibv_post_send");
	while (COUNTED(POLL_SEND, wanted, poll_one(a->scq)) == 0) {
	}
	while (COUNTED(POLL_RECV, wanted, poll_one(b->rcq)) == 0) {
	}
}

int main(int argc, char **argv)
{
	static struct side a, b;

	connected(&a, &b, argc > 1 ? argv[1] : "127.0.0.1");
	for (int i = 0; i < 4 * TIMES; i++) {
		message(&a, &b, CALLS);
		message(&b, &a, CALLS);
	}
	for (int wanted = 0; wanted < CALLS; wanted++) {
		for (int i = 0; i < TIMES; i++) {
			message(&a, &b, wanted);
			message(&b, &a, CALLS);
		}
		CALLGRIND_DUMP_STATS_AT(names[wanted]);
		printf("%s %d %u\n", names[wanted], TIMES, made[wanted]);
		fflush(stdout);
	}
	rdma_disconnect(a.id);
	return 0;
}
