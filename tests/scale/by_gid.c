/* Queue pairs that come up by GID and queue pair number; the ends tell each other over a socket of their own. */
#include "queue_pairs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

/* One queue pair, as the other end needs it. */
struct word {
	union ibv_gid gid;
	uint32_t qpn, psn;
};

static int control = -1, listener = -1;
static struct ibv_context *context;
static union ibv_gid gid;
static uint8_t gid_index;

static struct sockaddr_in address(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(options.port)};

	MUST(inet_pton(AF_INET, options.address, &a.sin_addr) == 1, "address %s", options.address);
	return a;
}

static void tell(const void *at, size_t octets)
{
	MUST(send(control, at, octets, MSG_NOSIGNAL) == (ssize_t)octets, "telling the other end");
}

static void hear(void *at, size_t octets)
{
	MUST(recv(control, at, octets, MSG_WAITALL) == (ssize_t)octets, "hearing from the other end");
}

/* The GID that is the address; else the first one there is. */
static void find_gid(void)
{
	struct ibv_port_attr port;
	struct sockaddr_in a = address();

	MUST(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid candidate;
		if (ibv_query_gid(context, 1, i, &candidate) == 0 && memcmp(candidate.raw + 12, &a.sin_addr, 4) == 0) {
			gid = candidate;
			gid_index = (uint8_t)i;
			return;
		}
	}
	MUST(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
}

static void make_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0] && (context = ibv_open_device(list[0])), "no device");
	find_gid();
	objects_make(context);
	for (uint32_t i = 0; i < options.count; i++) {
		struct ibv_qp_init_attr init = qp_attributes();
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
					   .port_num = 1,
					   .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
		struct ibv_qp *qp = ibv_create_qp(crowd.pd, &init);
		MUST(qp, "ibv_create_qp %u", i);
		int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		int error = ibv_modify_qp(qp, &attr, mask);
		MUST(error == 0, "to INIT: %s", strerror(error));
		qp_ready(i, qp);
	}
}

static struct word word_of(uint32_t connection)
{
	return (struct word){.gid = gid, .qpn = crowd.qps[connection]->qp_num, .psn = connection};
}

static void bring_up(uint32_t connection, const struct word *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer->qpn,
				   .rq_psn = peer->psn,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int error = ibv_modify_qp(crowd.qps[connection], &attr, mask);

	MUST(error == 0, "to RTR: %s", strerror(error));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .sq_psn = connection,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	       IBV_QP_MAX_QP_RD_ATOMIC;
	error = ibv_modify_qp(crowd.qps[connection], &attr, mask);
	MUST(error == 0, "to RTS: %s", strerror(error));
}

static void tell_all(void)
{
	struct target here = {(uintptr_t)crowd.blocks, crowd.mr->rkey};

	for (uint32_t i = 0; i < options.count; i++) {
		struct word own = word_of(i);
		tell(&own, sizeof(own));
	}
	tell(&here, sizeof(here));
}

static struct word *hear_all(void)
{
	struct word *peers = room(options.count * sizeof(*peers));

	for (uint32_t i = 0; i < options.count; i++)
		hear(&peers[i], sizeof(peers[i]));
	hear(&crowd.there, sizeof(crowd.there));
	return peers;
}

/* `each`, if any, becomes the time of each queue pair's two changes of state. */
static void bring_up_all(const struct word *peers, uint64_t *each)
{
	for (uint32_t i = 0; i < options.count; i++) {
		uint64_t start = now_ns();
		bring_up(i, &peers[i]);
		if (each)
			each[i] = now_ns() - start;
	}
	/* Both ends are at RTS; the streams under them may still be on their way. */
	tell("R", 1);
	hear(&(char){0}, 1);
}

void gid_listen(void)
{
	struct sockaddr_in a = address();
	int on = 1;

	MUST((listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0, "socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	MUST(bind(listener, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(listener, 1) == 0, "listen");
	make_all();
}

void gid_accept(void)
{
	MUST((control = accept(listener, NULL, NULL)) >= 0, "accept");
	const struct word *peers = hear_all();
	tell_all();
	bring_up_all(peers, NULL);
}

void gid_prepare(void)
{
	make_all();
}

void gid_connect(uint64_t *each, uint64_t *all)
{
	struct sockaddr_in a = address();
	uint64_t start = now_ns();

	MUST((control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0, "socket");
	MUST(connect(control, (struct sockaddr *)&a, sizeof(a)) == 0, "connect");
	tell_all();
	bring_up_all(hear_all(), each);
	*all = now_ns() - start;
}
