/*
 * Asks for memory it was not given, and shows that it does not get it.
 *
 *   overrun -s -p PORT                        the server: gives one page of three
 *   overrun -c ADDRESS -p PORT -o OPERATION   the client: write or read, from that page on into the next; with -f a
 *                                             write does so in its first FPDUs
 *
 * The client first does the same within bounds, which has to work, and a write waits for a read before it goes
 * further: the answer shows that the server has seen the connection come up, and Linux siw does not outlive a fault
 * that comes together with the ready-to-receive message. The client also gives the server time to send the whole
 * answer: siw that meets a fault while it sends an FPDU ends the connection without a Terminate. The connection then
 * has to end, and not an octet outside the page may have changed or been seen. Written against the system's headers and
 * the documented interface.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PAGE 4096
#define GIVEN 0x11    /* octets of the page that is given away */
#define CANARY 0xC5   /* octets on both sides of it */
#define CLIENT 0x77   /* octets of the client's */
#define PATIENCE 20000 /* ms until the other end has to have noticed */
#define SENT 100000    /* us in which the server's last FPDU has left, its CRC field too */

struct offer {
	uint64_t address;
	uint32_t key;
};

static void fail(const char *call)
{
	fprintf(stderr, "overrun: %s: %s\n", call, strerror(errno));
	exit(1);
}

static struct rdma_cm_id *endpoint(char *address, char *port, int passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = passive ? RAI_PASSIVE : 0 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
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

/* Waits for the end of the connection. */
static void await_end(struct rdma_cm_id *id)
{
	struct pollfd ready = { .fd = id->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&ready, 1, PATIENCE) != 1) {
		fprintf(stderr, "overrun: the connection did not end\n");
		exit(1);
	}
	if (rdma_get_cm_event(id->channel, &event))
		fail("rdma_get_cm_event");
	printf("event: %s\n", rdma_event_str(event->event));
	if (event->event != RDMA_CM_EVENT_DISCONNECTED)
		exit(1);
	rdma_ack_cm_event(event);
}

static void count_others(const uint8_t *octets, size_t length, uint8_t wanted, const char *where)
{
	size_t others = 0;

	for (size_t i = 0; i < length; i++)
		others += octets[i] != wanted;
	printf("%s: %zu of %zu octets are not as they should be\n", where, others, length);
	if (others)
		exit(1);
}

static void serve(char *port)
{
	struct rdma_cm_id *listener = endpoint(NULL, port, 1), *id;
	uint8_t *pages = aligned_alloc(PAGE, 3 * PAGE);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct offer offer;
	struct ibv_mr *mr;

	memset(pages, CANARY, 3 * PAGE);
	memset(pages + PAGE, GIVEN, PAGE);
	if (rdma_listen(listener, 1))
		fail("rdma_listen");
	if (rdma_get_request(listener, &id))
		fail("rdma_get_request");
	mr = ibv_reg_mr(id->pd, pages + PAGE, PAGE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!mr)
		fail("ibv_reg_mr");
	offer = (struct offer){ .address = (uintptr_t)pages + PAGE, .key = mr->rkey };
	param.private_data = &offer;
	param.private_data_len = sizeof(offer);
	if (rdma_accept(id, &param))
		fail("rdma_accept");
	await_end(id);
	count_others(pages, PAGE, CANARY, "before the page");
	count_others(pages + 2 * PAGE, PAGE, CANARY, "after the page");
	printf("held\n");
}

/* Posts one operation on `length` octets and says how it completed. */
static enum ibv_wc_status operate(struct rdma_cm_id *id, struct ibv_mr *mr, uint32_t length, struct offer *offer,
				  int is_read)
{
	struct ibv_wc wc;
	int done;

	if (is_read)
		done = rdma_post_read(id, NULL, mr->addr, length, mr, 0, offer->address, offer->key);
	else
		done = rdma_post_write(id, NULL, mr->addr, length, mr, 0, offer->address, offer->key);
	if (done)
		fail("post");
	if (rdma_get_send_comp(id, &wc) != 1)
		fail("rdma_get_send_comp");
	printf("%u octets: %s\n", length, ibv_wc_status_str(wc.status));
	return wc.status;
}

static void ask(char *address, char *port, int is_read, int at_once)
{
	struct rdma_cm_id *id = endpoint(address, port, 0);
	uint8_t *pages = aligned_alloc(PAGE, 2 * PAGE);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct offer offer;
	struct ibv_mr *mr;

	memset(pages, CLIENT, 2 * PAGE);
	mr = ibv_reg_mr(id->pd, pages, 2 * PAGE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!mr)
		fail("ibv_reg_mr");
	if (rdma_connect(id, &param))
		fail("rdma_connect");
	if (id->event->param.conn.private_data_len < sizeof(offer)) {
		fprintf(stderr, "overrun: no offer in the private data\n");
		exit(1);
	}
	memcpy(&offer, id->event->param.conn.private_data, sizeof(offer));
	if (operate(id, mr, PAGE, &offer, is_read) != IBV_WC_SUCCESS)
		exit(1);
	if (!is_read && !at_once) {
		if (operate(id, mr, PAGE, &offer, 1) != IBV_WC_SUCCESS)
			exit(1);
		/* A read may complete when its last octet is there, before the CRC field that follows it. */
		usleep(SENT);
	}
	/* A write may complete before the other end has refused it; a read cannot. */
	if (operate(id, mr, PAGE + 64, &offer, is_read) == IBV_WC_SUCCESS && is_read)
		exit(1);
	await_end(id);
	count_others(pages + PAGE, PAGE, CLIENT, "what was not to be read");
	if (is_read)
		count_others(pages, PAGE, GIVEN, "the page");
	printf("refused\n");
}

int main(int argc, char **argv)
{
	char *address = NULL, *port = "18515";
	int option, is_read = 0, at_once = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt(argc, argv, "sfc:p:o:")) != -1) {
		switch (option) {
		case 's': break;
		case 'f': at_once = 1; break;
		case 'c': address = optarg; break;
		case 'p': port = optarg; break;
		case 'o': is_read = !strcmp(optarg, "read"); break;
		default: return 2;
		}
	}
	if (address)
		ask(address, port, is_read, at_once);
	else
		serve(port);
	return 0;
}
