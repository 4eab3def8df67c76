/*
 * A server that is attacked: it takes whoever connects and opens a region to each.
 *
 *     server ADDRESS PORT PASSWORD SECRET
 *
 * It says in a line of JSON what it listens on. Each line of its standard input it answers with its counts, and it ends
 * with it; after `mark` it counts anew which of its receives are used. One shared receive queue serves all connections,
 * so that who empties it empties it for everybody. SECRET is in memory that no peer was given.
 */
#include "common.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { RECEIVES = 512, CONNECTIONS = 300, SECRETS = 8192, Q_KEY = 0x5eed };

struct connection {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_mr *answer_mr;
	struct answer answer;
	uint8_t *region;
	bool answering;
	struct connection *next;
};

static struct rdma_event_channel *events;
static struct ibv_comp_channel *completions;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *messages_mr, *secret_mr;
static uint8_t (*messages)[MESSAGE];
static uint8_t datagrams[64][MESSAGE];
static uint64_t password, *secrets, secret;
static bool seen[RECEIVES];
static struct connection *connections;
static struct {
	unsigned long long now, accepted, turned_away, answered, wrong, strange, datagrams;
} counts;

static void post_receive(uint64_t number)
{
	struct ibv_sge sge = {(uintptr_t)messages[number], MESSAGE, messages_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;

	MUST(ibv_post_srq_recv(srq, &wr, &bad) == 0, "post_srq_recv");
}

/* Two queue pairs that come up by GID and number, for those who look for such: one waits, one takes datagrams. */
static void bring_up(void)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 64, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
	struct ibv_qp *rc = ibv_create_qp(pd, &init), *ud;

	MUST(rc, "create_qp");
	MUST(ibv_modify_qp(rc, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
	init.qp_type = IBV_QPT_UD;
	ud = ibv_create_qp(pd, &init);
	MUST(ud, "create_qp");
	MUST(ibv_modify_qp(ud, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0, "INIT");
	attr.qp_state = IBV_QPS_RTR;
	MUST(ibv_modify_qp(ud, &attr, IBV_QP_STATE) == 0, "RTR");
	struct ibv_mr *mr = ibv_reg_mr(pd, datagrams, sizeof(datagrams), IBV_ACCESS_LOCAL_WRITE);
	MUST(mr, "reg_mr");
	for (int n = 0; n < 64; n++) {
		struct ibv_sge sge = {(uintptr_t)datagrams[n], MESSAGE, mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = UINT64_MAX, .sg_list = &sge, .num_sge = 1}, *bad;

		MUST(ibv_post_recv(ud, &wr, &bad) == 0, "post_recv");
	}
	printf("\"rc\": %u, \"ud\": %u, ", rc->qp_num, ud->qp_num);
}

static void open_all(struct ibv_context *context)
{
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};

	pd = ibv_alloc_pd(context);
	completions = ibv_create_comp_channel(context);
	MUST(pd && completions, "objects");
	cq = ibv_create_cq(context, 8192, NULL, completions, 0);
	srq = ibv_create_srq(pd, &srq_init);
	MUST(cq && srq, "queues");
	MUST(ibv_req_notify_cq(cq, 0) == 0, "req_notify_cq");
	messages = calloc(RECEIVES, MESSAGE);
	secrets = calloc(SECRETS, sizeof(*secrets));
	messages_mr = ibv_reg_mr(pd, messages, RECEIVES * MESSAGE, IBV_ACCESS_LOCAL_WRITE);
	secret_mr = ibv_reg_mr(pd, secrets, SECRETS * sizeof(*secrets), IBV_ACCESS_LOCAL_WRITE);
	MUST(messages_mr && secret_mr, "reg_mr");
	for (int n = 0; n < SECRETS; n++)
		secrets[n] = secret;
	for (int n = 0; n < RECEIVES; n++)
		post_receive(n);
}

static void answer(struct connection *c, const uint8_t *message, uint32_t length)
{
	struct question q;
	struct ibv_send_wr *bad;

	memcpy(&q, message, sizeof(q));
	if (length != sizeof(q) || q.password != password || q.length > REGION || c->answering) {
		counts.strange++;
		return;
	}
	c->answer.number = q.number;
	c->answer.wrong = !is_right(c->region, q.number, q.length);
	counts.wrong += c->answer.wrong;
	fill(c->answer.octets, ~q.number, sizeof(c->answer.octets));
	struct ibv_sge sge = {(uintptr_t)&c->answer, sizeof(c->answer), c->answer_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uintptr_t)c, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED};
	c->answering = ibv_post_send(c->id->qp, &wr, &bad) == 0;
	counts.answered++;
}

static struct connection *by_number(uint32_t qp_num)
{
	for (struct connection *c = connections; c; c = c->next)
		if (c->id->qp->qp_num == qp_num)
			return c;
	return NULL;
}

static void completed(const struct ibv_wc *wc)
{
	struct connection *c = by_number(wc->qp_num);

	if (wc->wr_id == UINT64_MAX) {
		counts.datagrams++;
	} else if (wc->wr_id >= RECEIVES) {
		if (c)
			c->answering = false;
	} else {
		if (c && wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV)
			answer(c, messages[wc->wr_id], wc->byte_len);
		seen[wc->wr_id] = true;
		post_receive(wc->wr_id);
	}
}

static void drain(void)
{
	struct ibv_wc wc[32];
	int n;

	while ((n = ibv_poll_cq(cq, 32, wc)) > 0)
		for (int i = 0; i < n; i++)
			completed(&wc[i]);
	MUST(n == 0, "poll_cq");
}

static void completion_events(void)
{
	struct ibv_cq *which;
	void *context;

	if (ibv_get_cq_event(completions, &which, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	MUST(ibv_req_notify_cq(cq, 0) == 0, "req_notify_cq");
	drain();
}

static void let_go(struct connection *gone)
{
	struct connection **at = &connections;

	/* The receive that a message had begun to fill goes back to the shared queue. */
	drain();
	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	counts.now--;
	rdma_destroy_qp(gone->id);
	MUST(ibv_dereg_mr(gone->mr) == 0 && ibv_dereg_mr(gone->answer_mr) == 0, "dereg_mr");
	rdma_destroy_id(gone->id);
	free(gone->region);
	free(gone);
}

static void take(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = {16, 1, 1, 1, 0}};
	const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                   IBV_ACCESS_REMOTE_ATOMIC;
	struct connection *c;

	if (counts.now >= CONNECTIONS) {
		counts.turned_away++;
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return;
	}
	c = calloc(1, sizeof(*c));
	c->id = id;
	id->context = c;
	c->region = calloc(1, REGION);
	c->mr = ibv_reg_mr(pd, c->region, REGION, rights);
	c->answer_mr = ibv_reg_mr(pd, &c->answer, sizeof(c->answer), 0);
	MUST(c->mr && c->answer_mr, "reg_mr");
	MUST(rdma_create_qp(id, pd, &init) == 0, "create_qp");
	struct grant grant = {(uintptr_t)c->region, c->mr->rkey, REGION};
	struct rdma_conn_param param = {
		.private_data = &grant, .private_data_len = sizeof(grant), .responder_resources = 4, .initiator_depth = 4};
	c->next = connections;
	connections = c;
	counts.now++;
	if (rdma_accept(id, &param) == 0)
		counts.accepted++;
	else
		let_go(c); /* its peer has gone meanwhile, and no event will say so */
}

static void connection_events(void)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(events, &event) == 0) {
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;

		rdma_ack_cm_event(event);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			take(id);
		else if (type != RDMA_CM_EVENT_ESTABLISHED && id->context)
			let_go(id->context);
	}
}

static bool commands(void)
{
	char octets[256];
	unsigned damaged = 0, receives = 0;

	if (read(0, octets, sizeof(octets)) <= 0)
		return false;
	if (octets[0] == 'm')
		memset(seen, 0, sizeof(seen));
	for (int n = 0; n < SECRETS; n++)
		damaged += secrets[n] != secret;
	for (int n = 0; n < RECEIVES; n++)
		receives += seen[n];
	printf("{\"connections\": %llu, \"accepted\": %llu, \"turned_away\": %llu, \"answered\": %llu, \"wrong\": %llu, "
	       "\"strange\": %llu, \"datagrams\": %llu, \"damaged\": %u, \"receives\": %u}\n",
	       counts.now, counts.accepted, counts.turned_away, counts.answered, counts.wrong, counts.strange,
	       counts.datagrams, damaged, receives);
	return true;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct rdma_cm_id *listener;
	int devices;

	MUST(argc == 5 && inet_aton(argv[1], &address.sin_addr), "server ADDRESS PORT PASSWORD SECRET");
	address.sin_port = htons(atoi(argv[2]));
	password = strtoull(argv[3], NULL, 16);
	secret = strtoull(argv[4], NULL, 16);
	setvbuf(stdout, NULL, _IOLBF, 0);
	events = rdma_create_event_channel();
	MUST(events && rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0, "create_id");
	MUST(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0, "bind_addr");
	MUST(rdma_listen(listener, 16) == 0, "listen");
	struct ibv_context **contexts = rdma_get_devices(&devices);
	MUST(contexts && devices > 0, "devices");
	open_all(contexts[0]);
	printf("{");
	bring_up();
	printf("\"port\": %u, \"key\": %u, \"secret_address\": %llu}\n", ntohs(rdma_get_src_port(listener)), secret_mr->lkey,
	       (unsigned long long)(uintptr_t)secrets);
	fcntl(events->fd, F_SETFL, O_NONBLOCK);
	fcntl(completions->fd, F_SETFL, O_NONBLOCK);
	struct pollfd fds[] = {{events->fd, POLLIN}, {completions->fd, POLLIN}, {0, POLLIN}};
	for (;;) {
		MUST(poll(fds, 3, -1) > 0, "poll");
		if (fds[1].revents)
			completion_events();
		if (fds[0].revents)
			connection_events();
		if (fds[2].revents && !commands())
			return 0;
	}
}
