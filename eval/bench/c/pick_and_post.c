/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Messages whose header says which of the receiver's places their payload belongs to. An ordinary program on librdmacm:
 * it knows nothing of Weft. Both ends poll. Three ways:
 *
 *   pick      a Send brings the header alone; the receiver then reads the payload to its place by RDMA Read
 *   posted    a Send brings both into the receive that was posted for the next message, whatever its place
 *   copied    the same, and the receiver copies the payload to its place
 *
 *   pick_and_post WAY SIZE PORT                      serves one client, and receives
 *   pick_and_post WAY SIZE PORT ADDRESS SECONDS      sends for a time, and prints what the receiver counted, as JSON
 *
 * The sender has up to DEPTH messages under way; the receiver tells how many it has taken. Each payload begins with its
 * message's number, which the receiver looks at; at the end it looks at every octet of what each place has.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/rdma_cma.h>

enum { DEPTH = 16, TELL_EVERY = 4, PERIOD = 251, RESOLVE_TIMEOUT_MS = 5000, BATCH = 16 };
enum { PICK, POSTED, COPIED };
static const uint64_t LAST = UINT64_MAX;

struct header {
	uint64_t number;
	uint32_t place, length;
};

/* What the receiver has taken, and at the end for how long. */
struct taken {
	uint64_t count, nanoseconds, is_last;
};

/* Where the sender's payloads are. */
struct source {
	uint64_t address;
	uint32_t rkey;
};

static int way, size;
static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct source source;

/*
 * One registered memory: the headers and notes of the messages under way, then DEPTH payloads of the sender or places
 * of the receiver, and behind them as many again for what the receiver copies from.
 */
static struct header *headers;
static struct taken *notes;
static char *payloads, *staging;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

#define NEED(what) do { if (!(what)) die(#what); } while (0)

static void wrong(const char *what, uint64_t number)
{
	fprintf(stderr, "%s of message %llu is another one\n", what, (unsigned long long)number);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

/* Neighbours go to places that are no neighbours. */
static struct header header_of(uint64_t number)
{
	return (struct header){.number = number, .place = (number * 7 + 3) % DEPTH, .length = size};
}

static char *at(char *memory, uint64_t number)
{
	return memory + number % DEPTH * (size_t)size;
}

static void check_all(const char *payload, uint64_t number)
{
	if (memcmp(payload, &number, sizeof(number)))
		wrong("the number", number);
	for (int i = sizeof(number); i < size; i++)
		if ((unsigned char)payload[i] != i % PERIOD)
			wrong("an octet", number);
}

static void allocate(void)
{
	size_t before = 4096, length = before + 2 * DEPTH * (size_t)size;
	char *memory;

	NEED(posix_memalign((void **)&memory, 4096, length) == 0);
	memset(memory, 0, length);
	headers = (struct header *)memory;
	notes = (struct taken *)(memory + DEPTH * sizeof(*headers));
	payloads = memory + before;
	staging = payloads + DEPTH * (size_t)size;
	NEED(mr = ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
}

static void create_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 4 * DEPTH, .max_recv_wr = 2 * DEPTH, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};

	NEED(pd = ibv_alloc_pd(id->verbs));
	NEED(cq = ibv_create_cq(id->verbs, 8 * DEPTH, NULL, NULL, 0));
	allocate();
	attr.send_cq = attr.recv_cq = cq;
	NEED(rdma_create_qp(id, pd, &attr) == 0);
}

static struct ibv_sge sge(void *memory, size_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey};
}

static void post_receive(struct ibv_sge *list, int count)
{
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = count}, *bad;

	errno = ibv_post_recv(id->qp, &wr, &bad);
	NEED(errno == 0);
}

static void post_send(struct ibv_sge *list, int count)
{
	struct ibv_send_wr wr = {
		.sg_list = list, .num_sge = count, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	errno = ibv_post_send(id->qp, &wr, &bad);
	NEED(errno == 0);
}

/* So many completions, or none yet; none of them has failed. */
static int completions(struct ibv_wc *list)
{
	int n = ibv_poll_cq(cq, BATCH, list);

	NEED(n >= 0);
	for (int i = 0; i < n; i++)
		if (list[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(list[i].status));
			exit(1);
		}
	return n;
}

/* The receiver. */

static uint64_t arrived, taken, first, notes_sent;
/* Which message each place has, counted from 1. */
static uint64_t holds[DEPTH];

/* The receive of the next message but DEPTH: a header, and where a payload comes with it the memory for that. */
static void post_next(uint64_t number)
{
	char *place = at(way == COPIED ? staging : payloads, number);
	struct ibv_sge list[2] = {sge(&headers[number % DEPTH], sizeof(*headers)), sge(place, size)};

	post_receive(list, way == PICK ? 1 : 2);
}

static void tell_taken(uint64_t nanoseconds, uint64_t is_last)
{
	struct taken *note = &notes[notes_sent++ % DEPTH];
	struct ibv_sge list = sge(note, sizeof(*note));

	*note = (struct taken){.count = taken, .nanoseconds = nanoseconds, .is_last = is_last};
	post_send(&list, 1);
}

/* The payload of the next message is at this place. The first opens the clock: it left before. */
static void take(int place)
{
	if (memcmp(payloads + place * (size_t)size, &taken, sizeof(taken)))
		wrong("the number", taken);
	if (!taken)
		first = now_ns();
	holds[place] = ++taken;
	post_next(taken + DEPTH - 1);
	if (taken % TELL_EVERY == 0)
		tell_taken(0, 0);
}

static void read_payload(const struct header *header)
{
	struct ibv_sge list = sge(payloads + header->place * (size_t)size, size);
	struct ibv_send_wr *bad, wr = {
		.wr_id = header->place,
		.sg_list = &list,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = source.address + header->number % DEPTH * (uint64_t)size, .rkey = source.rkey},
	};

	errno = ibv_post_send(id->qp, &wr, &bad);
	NEED(errno == 0);
}

/* Whether there are more. */
static int on_header(void)
{
	struct header header = headers[arrived % DEPTH], wanted = header_of(arrived);

	if (header.number == LAST)
		return 0;
	if (memcmp(&header, &wanted, sizeof(wanted)))
		wrong("the header", arrived);
	arrived++;
	if (way == PICK) {
		read_payload(&header);
	} else if (way == POSTED) {
		take(header.number % DEPTH);
	} else {
		memcpy(payloads + header.place * (size_t)size, at(staging, header.number), size);
		take(header.place);
	}
	return 1;
}

static void receive(void)
{
	struct ibv_wc list[BATCH];
	uint64_t nanoseconds;
	int goes_on = 1, n;

	while (goes_on || taken < arrived) {
		n = completions(list);
		for (int i = 0; i < n; i++)
			if (list[i].opcode & IBV_WC_RECV)
				goes_on = on_header();
			else if (list[i].opcode == IBV_WC_RDMA_READ)
				take(list[i].wr_id);
	}
	nanoseconds = now_ns() - first;
	for (int place = 0; place < DEPTH; place++)
		if (holds[place])
			check_all(payloads + place * (size_t)size, holds[place] - 1);
	tell_taken(nanoseconds, 1);
}

/* The next event; it has to be the expected one. The caller acknowledges it. */
static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	NEED(rdma_get_cm_event(events, &event) == 0);
	if (event->event != type) {
		fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void serve(struct sockaddr_in *address)
{
	struct rdma_conn_param param = {.responder_resources = DEPTH, .initiator_depth = DEPTH};
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;

	NEED(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_bind_addr(listener, (struct sockaddr *)address) == 0);
	NEED(rdma_listen(listener, 1) == 0);
	event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	NEED(event->param.conn.private_data_len >= sizeof(source));
	memcpy(&source, event->param.conn.private_data, sizeof(source));
	rdma_ack_cm_event(event);
	create_qp();
	for (int number = 0; number < DEPTH; number++)
		post_next(number);
	NEED(rdma_accept(id, &param) == 0);
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED));
	receive();
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED));
}

/* The sender. */

static uint64_t sent;

static void send_message(void)
{
	struct ibv_sge list[2] = {sge(&headers[sent % DEPTH], sizeof(*headers)), sge(at(payloads, sent), size)};

	headers[sent % DEPTH] = header_of(sent);
	memcpy(at(payloads, sent), &sent, sizeof(sent));
	post_send(list, way == PICK ? 1 : 2);
	sent++;
}

static void send_last(void)
{
	struct ibv_sge list = sge(&headers[sent % DEPTH], sizeof(*headers));

	headers[sent % DEPTH] = (struct header){.number = LAST};
	post_send(&list, 1);
}

static void post_note(uint64_t number)
{
	struct ibv_sge list = sge(&notes[number % DEPTH], sizeof(*notes));

	post_receive(&list, 1);
}

/* What the receiver has told last. */
static void hear(struct taken *told)
{
	static uint64_t heard;
	struct ibv_wc list[BATCH];
	int n = completions(list);

	for (int i = 0; i < n; i++)
		if (list[i].opcode & IBV_WC_RECV) {
			*told = notes[heard % DEPTH];
			post_note(heard++);
		}
}

static void send_for(int seconds)
{
	uint64_t end = now_ns() + seconds * UINT64_C(1000000000);
	struct taken told = {};

	for (int i = 0; i < DEPTH * size; i++)
		payloads[i] = i % size % PERIOD;
	/* At least two: the first opens the clock. */
	while (now_ns() < end || sent < 2)
		if (sent - told.count < DEPTH)
			send_message();
		else
			hear(&told);
	/* The last header takes the place of one that the receiver has had. */
	while (sent - told.count == DEPTH)
		hear(&told);
	send_last();
	while (!told.is_last)
		hear(&told);
	if (told.count != sent) {
		fprintf(stderr, "%llu of %llu messages were taken\n", (unsigned long long)told.count,
			(unsigned long long)sent);
		exit(1);
	}
	double rate = (told.count - 1) * 1e9 / told.nanoseconds;
	printf("{\"goodput_gbit_s\": %.6f, \"messages_per_s\": %.3f, \"operations\": %llu}\n", rate * size * 8 / 1e9,
	       rate, (unsigned long long)sent);
}

static void measure(struct sockaddr_in *address, int seconds)
{
	struct rdma_conn_param param = {.responder_resources = DEPTH, .initiator_depth = DEPTH};

	NEED(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_resolve_addr(id, NULL, (struct sockaddr *)address, RESOLVE_TIMEOUT_MS) == 0);
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
	NEED(rdma_resolve_route(id, RESOLVE_TIMEOUT_MS) == 0);
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED));
	create_qp();
	for (int number = 0; number < DEPTH; number++)
		post_note(number);
	source = (struct source){.address = (uintptr_t)payloads, .rkey = mr->rkey};
	param.private_data = &source;
	param.private_data_len = sizeof(source);
	NEED(rdma_connect(id, &param) == 0);
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED));
	send_for(seconds);
	NEED(rdma_disconnect(id) == 0);
}

static int usage(const char *name)
{
	fprintf(stderr, "usage: %s pick|posted|copied SIZE PORT [ADDRESS SECONDS]\n", name);
	return 2;
}

int main(int argc, char **argv)
{
	static const char *const ways[] = {"pick", "posted", "copied"};
	struct sockaddr_in address = {.sin_family = AF_INET};

	if (argc != 4 && argc != 6)
		return usage(argv[0]);
	while (way <= COPIED && strcmp(argv[1], ways[way]))
		way++;
	size = atoi(argv[2]);
	address.sin_port = htons(atoi(argv[3]));
	if (way > COPIED || size < (int)sizeof(uint64_t) || size > 1 << 24)
		return usage(argv[0]);
	NEED(events = rdma_create_event_channel());
	if (argc == 4) {
		serve(&address);
		return 0;
	}
	NEED(inet_pton(AF_INET, argv[4], &address.sin_addr) == 1);
	measure(&address, atoi(argv[5]));
	return 0;
}
