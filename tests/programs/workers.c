/*
 * Writes as a transfer engine does: worker threads that spin, and one that hands them batches in turn.
 *
 *   workers -s -p PORT [-T]                                  the server, for one client
 *   workers -c ADDRESS -p PORT [-w WORKERS] [-t SECONDS] [-T]   the client
 *
 * Each worker has a connection and a completion queue of its own and never sleeps: it polls its queue, and looks
 * whether a batch was handed to it. A batch is 16 Writes of 64 KiB; the thread that hands them out spins until one is
 * complete before it gives the next worker one. So one worker at a time has work, and all take time from it. With -T
 * the same octets go over TCP, by workers that sleep as programs for sockets do, and a batch is complete when the
 * server has read it and said so. Each batch ends with its number; both ends print the sum over the workers of the last
 * ones, which are the same if all arrived. Written against the system's headers and the documented interface alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define MOST 64        /* workers */
#define BLOCK 65536    /* octets of a Write */
#define BATCH 16       /* Writes */
#define AREA (BLOCK * BATCH)

struct worker {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	int fd; /* with -T */
	uint8_t *area;
	uint64_t address; /* of the server's area */
	uint32_t key;
	_Atomic uint64_t given; /* number of the last batch handed to it */
	_Atomic uint64_t done;
	sem_t handed; /* with -T */
	pthread_t thread;
};

static struct worker workers[MOST];
static atomic_int stop;
static int over_tcp;

static void fail(const char *call)
{
	fprintf(stderr, "workers: %s: %s\n", call, strerror(errno));
	exit(1);
}

static uint8_t *area(void)
{
	uint8_t *octets = aligned_alloc(4096, AREA);

	if (!octets)
		fail("aligned_alloc");
	memset(octets, 0, AREA);
	return octets;
}

/* Where a batch's number stands: at the end of its last Write. */
static void *number_of(uint8_t *octets)
{
	return octets + AREA - sizeof(uint64_t);
}

/* What the server tells each connection: its area, in the private data; and what it is asked at the end. */
struct offer {
	uint64_t address;
	uint32_t key;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* --- over RDMA */

static struct rdma_cm_id *endpoint(char *address, char *port, int passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = passive ? RAI_PASSIVE : 0 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2 * BATCH, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(address, port, &hints, &info))
		fail("rdma_getaddrinfo");
	if (rdma_create_ep(&id, info, NULL, &attr))
		fail("rdma_create_ep");
	rdma_freeaddrinfo(info);
	return id;
}

/* Serves until every connection has ended: asleep in rdma_get_cm_event. Gives the sum of the last numbers. */
static uint64_t serve_rdma(char *port)
{
	struct rdma_cm_id *listener = endpoint(NULL, port, 1), *id;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	uint64_t sum = 0, number;
	int served = 0, open = 0;

	if (!channel || rdma_migrate_id(listener, channel) || rdma_listen(listener, MOST))
		fail("rdma_listen");
	while (!served || open) {
		struct ibv_qp_init_attr attr = {
			.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
			.qp_type = IBV_QPT_RC,
		};
		struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
		struct offer offer;
		struct worker *worker;

		if (rdma_get_cm_event(channel, &event))
			fail("rdma_get_cm_event");
		id = event->id;
		switch (event->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			if (served == MOST) {
				fprintf(stderr, "workers: more than %d connections\n", MOST);
				exit(1);
			}
			worker = &workers[served++];
			open++;
			id->context = worker;
			worker->area = area();
			if (rdma_create_qp(id, NULL, &attr))
				fail("rdma_create_qp");
			worker->mr = ibv_reg_mr(id->pd, worker->area, AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
			if (!worker->mr)
				fail("ibv_reg_mr");
			offer = (struct offer){ (uintptr_t)worker->area, worker->mr->rkey };
			param.private_data = &offer;
			param.private_data_len = sizeof(offer);
			if (rdma_accept(id, &param))
				fail("rdma_accept");
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			worker = id->context;
			memcpy(&number, number_of(worker->area), sizeof(number));
			sum += number;
			open--;
			rdma_disconnect(id);
			break;
		default:
			fprintf(stderr, "workers: %s\n", rdma_event_str(event->event));
			exit(1);
		}
		rdma_ack_cm_event(event);
	}
	return sum;
}

static void connect_rdma(struct worker *worker, char *address, char *port)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct offer offer;

	worker->id = endpoint(address, port, 0);
	worker->mr = ibv_reg_mr(worker->id->pd, worker->area, AREA, IBV_ACCESS_LOCAL_WRITE);
	if (!worker->mr)
		fail("ibv_reg_mr");
	if (rdma_connect(worker->id, &param))
		fail("rdma_connect");
	memcpy(&offer, worker->id->event->param.conn.private_data, sizeof(offer));
	worker->address = offer.address;
	worker->key = offer.key;
}

static void post_batch(struct worker *worker)
{
	for (int i = 0; i < BATCH; i++) {
		uint8_t *from = worker->area + i * BLOCK;

		if (rdma_post_write(worker->id, NULL, from, BLOCK, worker->mr, IBV_SEND_SIGNALED,
				    worker->address + i * BLOCK, worker->key))
			fail("rdma_post_write");
	}
}

static int poll_batch(struct worker *worker)
{
	struct ibv_wc wc[BATCH];
	int found = ibv_poll_cq(worker->id->send_cq, BATCH, wc);

	if (found < 0)
		fail("ibv_poll_cq");
	for (int i = 0; i < found; i++)
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "workers: a Write: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	return found;
}

/* --- over TCP */

static void all(ssize_t (*call)(int, void *, size_t, int), int fd, uint8_t *octets, size_t length)
{
	while (length) {
		ssize_t done = call(fd, octets, length, 0);

		if (done <= 0)
			fail("TCP");
		octets += done;
		length -= done;
	}
}

static ssize_t send_some(int fd, void *octets, size_t length, int flags)
{
	return send(fd, octets, length, flags | MSG_NOSIGNAL);
}

static void *serve_one(void *argument)
{
	struct worker *worker = argument;

	while (recv(worker->fd, worker->area, 1, MSG_PEEK) == 1) {
		all(recv, worker->fd, worker->area, AREA);
		all(send_some, worker->fd, worker->area, 1);
	}
	close(worker->fd);
	return NULL;
}

static uint64_t serve_tcp(char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	uint32_t count;
	uint64_t sum = 0, number;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, MOST))
		fail("listen");
	for (uint32_t i = 0, known = 1; i < known; i++) {
		workers[i].fd = accept(listener, NULL, NULL);
		workers[i].area = area();
		setsockopt(workers[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		all(recv, workers[i].fd, (uint8_t *)&count, sizeof(count));
		known = count < MOST ? count : MOST;
		if (pthread_create(&workers[i].thread, NULL, serve_one, &workers[i]))
			fail("pthread_create");
	}
	for (uint32_t i = 0; i < MOST && workers[i].area; i++) {
		pthread_join(workers[i].thread, NULL);
		memcpy(&number, number_of(workers[i].area), sizeof(number));
		sum += number;
	}
	return sum;
}

static void connect_tcp(struct worker *worker, char *address, char *port, uint32_t count)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *info;
	int one = 1;

	if (getaddrinfo(address, port, &hints, &info))
		fail("getaddrinfo");
	worker->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(worker->fd, info->ai_addr, info->ai_addrlen))
		fail("connect");
	freeaddrinfo(info);
	setsockopt(worker->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	all(send_some, worker->fd, (uint8_t *)&count, sizeof(count));
}

/* --- the client's threads */

static void *spin(void *argument)
{
	struct worker *worker = argument;
	uint64_t begun = 0;
	int left = 0;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t given = atomic_load_explicit(&worker->given, memory_order_acquire);

		if (given != begun) {
			begun = given;
			left = BATCH;
			memcpy(number_of(worker->area), &given, sizeof(given));
			post_batch(worker);
		}
		left -= poll_batch(worker);
		if (begun && !left)
			atomic_store_explicit(&worker->done, begun, memory_order_release);
	}
	return NULL;
}

static void *sleep_for_work(void *argument)
{
	struct worker *worker = argument;
	uint8_t answer;

	for (;;) {
		uint64_t given;

		sem_wait(&worker->handed);
		if (atomic_load_explicit(&stop, memory_order_relaxed))
			return NULL;
		given = atomic_load_explicit(&worker->given, memory_order_acquire);
		memcpy(number_of(worker->area), &given, sizeof(given));
		all(send_some, worker->fd, worker->area, AREA);
		all(recv, worker->fd, &answer, 1);
		atomic_store_explicit(&worker->done, given, memory_order_release);
	}
}

static uint64_t hand_out(int count, double seconds)
{
	double start = now(), took;
	uint64_t batches = 0, sum = 0;

	do {
		struct worker *worker = &workers[batches % count];

		batches++;
		atomic_store_explicit(&worker->given, batches, memory_order_release);
		sem_post(&worker->handed);
		while (atomic_load_explicit(&worker->done, memory_order_acquire) != batches)
			;
		took = now() - start;
	} while (took < seconds);
	printf("%d workers%s: %llu batches, %.3f GB/s\n", count, over_tcp ? " over TCP" : "",
	       (unsigned long long)batches, batches * (double)AREA / took / 1e9);
	for (int i = 0; i < count; i++)
		sum += workers[i].given;
	return sum;
}

int main(int argc, char **argv)
{
	char *address = NULL, *port = "18530";
	double seconds = 3;
	int option, count = 4;
	uint64_t sum;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt(argc, argv, "sTc:p:w:t:")) != -1) {
		switch (option) {
		case 's': break;
		case 'T': over_tcp = 1; break;
		case 'c': address = optarg; break;
		case 'p': port = optarg; break;
		case 'w': count = atoi(optarg); break;
		case 't': seconds = atof(optarg); break;
		default: return 2;
		}
	}
	if (count < 1 || count > MOST) {
		fprintf(stderr, "workers: 1 to %d workers\n", MOST);
		return 2;
	}
	if (!address) {
		sum = over_tcp ? serve_tcp(port) : serve_rdma(port);
		printf("last batches, by what arrived: sum %llu\n", (unsigned long long)sum);
		return 0;
	}
	for (int i = 0; i < count; i++) {
		workers[i].area = area();
		sem_init(&workers[i].handed, 0, 0);
		if (over_tcp)
			connect_tcp(&workers[i], address, port, count);
		else
			connect_rdma(&workers[i], address, port);
	}
	for (int i = 0; i < count; i++)
		if (pthread_create(&workers[i].thread, NULL, over_tcp ? sleep_for_work : spin, &workers[i]))
			fail("pthread_create");
	sum = hand_out(count, seconds);
	stop = 1;
	for (int i = 0; i < count; i++) {
		sem_post(&workers[i].handed);
		pthread_join(workers[i].thread, NULL);
		if (over_tcp)
			close(workers[i].fd);
		else
			rdma_disconnect(workers[i].id);
	}
	printf("last batches, by what was handed out: sum %llu\n", (unsigned long long)sum);
	return 0;
}
