/*
 * An honest client of the attacked server: it writes, asks, reads back, and looks at every octet.
 *
 *     client ADDRESS PORT PASSWORD SEED
 *
 * Each line of its standard input is a number of seconds: for so long it connects, has some answers, disconnects and
 * connects again, and then says in a line of JSON how that went. A connect that fails is counted and tried again.
 */
#include "common.h"

#include <arpa/inet.h>
#include <poll.h>
#include <time.h>

enum { TRIPS = 200, TIMEOUT_MS = 12000 };

struct times {
	uint32_t *us;
	size_t count, room;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_comp_channel *completions;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct grant grant;
static uint64_t password;
static uint32_t number, state;
static struct times trips, connects;
static unsigned long long wrong, failed, lost;

/* What is sent from, received to and read to. */
static struct {
	uint8_t out[REGION], back[REGION];
	struct question question;
	struct answer answer;
} *memory;

static uint32_t any(uint32_t below)
{
	state ^= state << 13, state ^= state >> 17, state ^= state << 5;
	return state % below;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void note(struct times *times, double since)
{
	if (times->count == times->room) {
		times->room = times->room ? times->room * 2 : 4096;
		times->us = realloc(times->us, times->room * sizeof(*times->us));
		MUST(times->us, "memory");
	}
	times->us[times->count++] = (uint32_t)((now() - since) * 1e6);
}

static int by_size(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

static uint32_t at(struct times *times, double share)
{
	return times->count ? times->us[(size_t)((times->count - 1) * share)] : 0;
}

static bool event_is(enum rdma_cm_event_type wanted)
{
	struct pollfd fd = {events->fd, POLLIN};
	struct rdma_cm_event *event;

	if (poll(&fd, 1, TIMEOUT_MS) <= 0 || rdma_get_cm_event(events, &event))
		return false;
	bool is = event->event == wanted;
	if (!is)
		fprintf(stderr, "client: %s (%d) where %s was to come\n", rdma_event_str(event->event), event->status,
			rdma_event_str(wanted));
	if (is && wanted == RDMA_CM_EVENT_ESTABLISHED && event->param.conn.private_data_len >= sizeof(grant))
		memcpy(&grant, event->param.conn.private_data, sizeof(grant));
	rdma_ack_cm_event(event);
	return is;
}

static void post_receive(void)
{
	struct ibv_sge sge = {(uintptr_t)&memory->answer, sizeof(memory->answer), mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	MUST(ibv_post_recv(id->qp, &wr, &bad) == 0, "post_recv");
}

static bool up(void)
{
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 4, 1, 1, 0}};

	MUST(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0, "create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) || !event_is(RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    rdma_resolve_route(id, 2000) || !event_is(RDMA_CM_EVENT_ROUTE_RESOLVED))
		return false;
	if (!pd) {
		pd = ibv_alloc_pd(id->verbs);
		completions = ibv_create_comp_channel(id->verbs);
		MUST(pd && completions, "objects");
		cq = ibv_create_cq(id->verbs, 64, NULL, completions, 0);
		mr = ibv_reg_mr(pd, memory, sizeof(*memory), IBV_ACCESS_LOCAL_WRITE);
		MUST(cq && mr && ibv_req_notify_cq(cq, 0) == 0, "objects");
	}
	init.send_cq = init.recv_cq = cq;
	MUST(rdma_create_qp(id, pd, &init) == 0, "create_qp");
	post_receive();
	return rdma_connect(id, &param) == 0 && event_is(RDMA_CM_EVENT_ESTABLISHED);
}

static void down(bool connected)
{
	if (connected && rdma_disconnect(id) == 0)
		event_is(RDMA_CM_EVENT_DISCONNECTED);
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/* Waits for so many completions; false where one fails or does not come. */
static bool complete(int wanted)
{
	struct pollfd fd = {completions->fd, POLLIN};
	struct ibv_cq *which;
	struct ibv_wc wc;
	void *context;

	while (wanted > 0) {
		int n = ibv_poll_cq(cq, 1, &wc);

		MUST(n >= 0, "poll_cq");
		if (n && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "client: %s\n", ibv_wc_status_str(wc.status));
			return false;
		}
		wanted -= n;
		if (n)
			continue;
		if (poll(&fd, 1, TIMEOUT_MS) <= 0) {
			fprintf(stderr, "client: no completion in %d ms\n", TIMEOUT_MS);
			return false;
		}
		MUST(ibv_get_cq_event(completions, &which, &context) == 0, "get_cq_event");
		ibv_ack_cq_events(cq, 1);
		MUST(ibv_req_notify_cq(cq, 0) == 0, "req_notify_cq");
	}
	return true;
}

static void post(enum ibv_wr_opcode opcode, void *from, uint32_t length, bool signaled)
{
	struct ibv_sge sge = {(uintptr_t)from, length, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode,
	                         .send_flags = signaled ? IBV_SEND_SIGNALED : 0, .wr.rdma = {grant.address, grant.key}};
	struct ibv_send_wr *bad;

	MUST(ibv_post_send(id->qp, &wr, &bad) == 0, "post_send");
}

/* A Write, a question, its answer; now and then the region is read back. */
static bool trip(void)
{
	uint32_t length = 1 + any(any(4) ? 2048 : REGION);
	double since = now();

	number++;
	fill(memory->out, number, length);
	memory->question = (struct question){password, number, length};
	post(IBV_WR_RDMA_WRITE, memory->out, length, false);
	post(IBV_WR_SEND, &memory->question, sizeof(memory->question), true);
	if (!complete(2))
		return false;
	note(&trips, since);
	wrong += memory->answer.number != number || memory->answer.wrong ||
	         !is_right(memory->answer.octets, ~number, sizeof(memory->answer.octets));
	post_receive();
	if (any(4) == 0) {
		memset(memory->back, 0, length);
		post(IBV_WR_RDMA_READ, memory->back, length, true);
		if (!complete(1))
			return false;
		wrong += !is_right(memory->back, number, length);
	}
	return true;
}

static void go(double seconds)
{
	double end = now() + seconds;

	trips.count = connects.count = 0;
	wrong = failed = lost = 0;
	while (now() < end) {
		double since = now();
		bool connected = up();

		if (connected)
			note(&connects, since);
		else
			failed++;
		for (int n = 0; connected && n < TRIPS && now() < end; n++) {
			if (!trip()) {
				lost++;
				break;
			}
		}
		down(connected);
	}
	qsort(trips.us, trips.count, sizeof(*trips.us), by_size);
	qsort(connects.us, connects.count, sizeof(*connects.us), by_size);
	printf("{\"trips\": %zu, \"wrong\": %llu, \"lost\": %llu, \"connects\": %zu, \"failed\": %llu, \"p50_us\": %u, "
	       "\"p99_us\": %u, \"most_us\": %u, \"connect_p50_us\": %u, \"connect_p99_us\": %u, \"connect_most_us\": %u}\n",
	       trips.count, wrong, lost, connects.count, failed, at(&trips, 0.5), at(&trips, 0.99), at(&trips, 1),
	       at(&connects, 0.5), at(&connects, 0.99), at(&connects, 1));
}

int main(int argc, char **argv)
{
	char line[64];

	MUST(argc == 5 && inet_aton(argv[1], &address.sin_addr), "client ADDRESS PORT PASSWORD SEED");
	address.sin_port = htons(atoi(argv[2]));
	password = strtoull(argv[3], NULL, 16);
	state = strtoul(argv[4], NULL, 10) | 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	memory = calloc(1, sizeof(*memory));
	events = rdma_create_event_channel();
	MUST(memory && events, "memory");
	while (fgets(line, sizeof(line), stdin))
		go(atof(line));
	return 0;
}
