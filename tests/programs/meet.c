/*
 * Brings queue pairs up by GID and number many times, at changing distances in time.
 *
 *   meet -s -p PORT -n COUNT [-r SEED]              the server
 *   meet -c ADDRESS -p PORT -n COUNT [-r SEED]      the client; it may be started first
 *
 * The two tell each other GID, number and PSN over a TCP connection of their own, walk INIT, RTR, RTS with random
 * pauses, and send a message each way at once, without waiting for the other (but with UD, which may lose what comes
 * too early). RC, UC and UD take turns; every other time the queue pair of that type is reset and used again. The
 * program fails if anything takes longer than ten seconds. Written against the system's headers and the documented
 * interface alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { DEADLINE = 10, GRH = 40, QKEY = 0x1ee7, SIZE = 4096, TYPES = 3 };

static const enum ibv_qp_type types[TYPES] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
static const char *const names[TYPES] = {"RC", "UC", "UD"};

struct word {
	union ibv_gid gid;
	uint32_t qpn, psn;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char *buffer;
static struct ibv_qp *qps[TYPES];
static int control, number;

static void fail(const char *what)
{
	fprintf(stderr, "meet: time %d (%s): %s: %s\n", number + 1, names[number % TYPES], what, strerror(errno));
	exit(1);
}

#define NEED(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what))                                                                                           \
			fail(#what);                                                                                   \
	} while (0)

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Most pauses are none; some are longer than what the device waits before it tries again. */
static void pause_a_little(void)
{
	static const int most[] = {0, 0, 0, 300, 3000, 12000};
	int chosen = most[rand() % 6];

	if (chosen)
		usleep(rand() % chosen);
}

static void tell(const void *what, size_t length)
{
	NEED(write(control, what, length) == (ssize_t)length);
}

static void hear(void *what, size_t length)
{
	char *at = what;

	while (length) {
		ssize_t got = read(control, at, length);
		NEED(got > 0);
		at += got;
		length -= got;
	}
}

static void both_are_here(void)
{
	char octet = 0;

	tell(&octet, 1);
	hear(&octet, 1);
}

static int family_of(const union ibv_gid *gid)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, mapped, sizeof(mapped)) ? AF_INET6 : AF_INET;
}

static int is_loopback(const union ibv_gid *gid)
{
	return family_of(gid) == AF_INET ? gid->raw[12] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)gid);
}

/* The GID by which the control connection left this machine. A loopback address has none on a machine that has others:
 * then the first of its family, or the first. */
static int own_gid(union ibv_gid *gid)
{
	struct sockaddr_storage own;
	socklen_t length = sizeof(own);
	char wanted[INET6_ADDRSTRLEN + 8] = "::ffff:";
	union ibv_gid address;

	NEED(getsockname(control, (struct sockaddr *)&own, &length) == 0);
	if (own.ss_family == AF_INET) {
		inet_ntop(AF_INET, &((struct sockaddr_in *)&own)->sin_addr, wanted + 7, INET_ADDRSTRLEN);
		inet_pton(AF_INET6, wanted, &address);
	} else {
		memcpy(&address, &((struct sockaddr_in6 *)&own)->sin6_addr, sizeof(address));
	}
	for (int index = 0; ibv_query_gid(context, 1, index, gid) == 0; index++)
		if (!memcmp(gid, &address, sizeof(address)))
			return index;
	for (int index = 0; is_loopback(&address) && ibv_query_gid(context, 1, index, gid) == 0; index++)
		if (family_of(gid) == family_of(&address))
			return index;
	if (is_loopback(&address) && ibv_query_gid(context, 1, 0, gid) == 0)
		return 0;
	errno = ENOENT;
	fail("the GID of the control connection's address");
	return -1;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		fail(state == IBV_QPS_INIT ? "INIT" : state == IBV_QPS_RTR ? "RTR" : state == IBV_QPS_RTS ? "RTS" : "RESET");
}

static struct ibv_qp *queue_pair(int kind)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = types[kind],
	};
	struct ibv_qp_attr attr = {};

	if (!qps[kind]) {
		NEED(qps[kind] = ibv_create_qp(pd, &init));
	} else if (number / TYPES % 2) {
		modify(qps[kind], &attr, IBV_QPS_RESET, 0);
	} else {
		NEED(ibv_destroy_qp(qps[kind]) == 0);
		NEED(qps[kind] = ibv_create_qp(pd, &init));
	}
	return qps[kind];
}

static void walk_up(struct ibv_qp *qp, int index, const struct word *own, const struct word *other)
{
	int type = qp->qp_type, rtr = 0, rts = IBV_QP_SQ_PSN;
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other->qpn,
		.rq_psn = other->psn,
		.sq_psn = own->psn,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = other->gid, .sgid_index = index, .hop_limit = 1}},
	};

	if (type != IBV_QPT_UD)
		rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	pause_a_little();
	modify(qp, &attr, IBV_QPS_RTR, rtr);
	pause_a_little();
	modify(qp, &attr, IBV_QPS_RTS, rts);
}

static void post_receive(struct ibv_qp *qp)
{
	struct ibv_sge sge = {(uintptr_t)buffer, SIZE, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	errno = ibv_post_recv(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

static void post_send(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t to)
{
	struct ibv_sge sge = {(uintptr_t)buffer + SIZE, sizeof(number), mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to;
		wr.wr.ud.remote_qkey = QKEY;
	}
	memcpy(buffer + SIZE, &number, sizeof(number));
	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

static void both_complete(size_t payload_at)
{
	double deadline = now() + DEADLINE;
	int left = 2, heard;
	struct ibv_wc wc;

	while (left) {
		int got = ibv_poll_cq(cq, 1, &wc);
		NEED(got >= 0);
		errno = ETIMEDOUT;
		NEED(now() < deadline);
		if (!got)
			continue;
		if (wc.status != IBV_WC_SUCCESS) {
			errno = EIO;
			fail(ibv_wc_status_str(wc.status));
		}
		left--;
	}
	memcpy(&heard, buffer + payload_at, sizeof(heard));
	errno = EBADMSG;
	NEED(heard == number);
}

static void meet(void)
{
	int kind = number % TYPES, datagrams = types[kind] == IBV_QPT_UD;
	struct ibv_qp *qp = queue_pair(kind);
	struct ibv_qp_attr attr = {.port_num = 1, .qkey = QKEY};
	struct ibv_ah *ah = NULL;
	struct word own = {.qpn = qp->qp_num, .psn = rand() & 0xffffff}, other;
	int index = own_gid(&own.gid);

	modify(qp, &attr, IBV_QPS_INIT,
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	post_receive(qp);
	tell(&own, sizeof(own));
	hear(&other, sizeof(other));
	errno = EPROTO;
	NEED(family_of(&own.gid) == family_of(&other.gid));
	walk_up(qp, index, &own, &other);
	if (datagrams) {
		struct ibv_ah_attr to = {.is_global = 1,
					 .port_num = 1,
					 .grh = {.dgid = other.gid, .sgid_index = index, .hop_limit = 1}};
		NEED(ah = ibv_create_ah(pd, &to));
		both_are_here();
	}
	pause_a_little();
	post_send(qp, ah, other.qpn);
	both_complete(datagrams ? GRH : 0);
	if (ah)
		NEED(ibv_destroy_ah(ah) == 0);
	both_are_here();
}

static void connect_control(const char *address, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = address ? 0 : AI_PASSIVE,
				 .ai_family = address ? AF_UNSPEC : AF_INET6}, *found;
	double deadline = now() + DEADLINE;
	int yes = 1;

	NEED(getaddrinfo(address, port, &hints, &found) == 0);
	for (;;) {
		NEED((control = socket(found->ai_family, SOCK_STREAM, 0)) >= 0);
		if (!address)
			break;
		if (connect(control, found->ai_addr, found->ai_addrlen) == 0)
			return;
		NEED(errno == ECONNREFUSED && now() < deadline);
		close(control);
		usleep(20000);
	}
	int listener = control;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	NEED(bind(listener, found->ai_addr, found->ai_addrlen) == 0 && listen(listener, 1) == 0);
	NEED((control = accept(listener, NULL, NULL)) >= 0);
	close(listener);
}

int main(int argc, char **argv)
{
	const char *address = NULL, *port = "18515";
	int count = 200, option;
	unsigned seed = 1;

	while ((option = getopt(argc, argv, "sc:p:n:r:")) != -1) {
		switch (option) {
		case 's': break;
		case 'c': address = optarg; break;
		case 'p': port = optarg; break;
		case 'n': count = atoi(optarg); break;
		case 'r': seed = strtoul(optarg, NULL, 0); break;
		default: return 2;
		}
	}
	srand(seed * 2 + !!address);
	struct ibv_device **list = ibv_get_device_list(NULL);
	NEED(list && list[0] && (context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	NEED((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	NEED(buffer = calloc(2, SIZE));
	NEED(mr = ibv_reg_mr(pd, buffer, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE));
	connect_control(address, port);
	double start = now();
	for (number = 0; number < count; number++)
		meet();
	printf("%d met, %.1f s\n", count, now() - start);
	return 0;
}
