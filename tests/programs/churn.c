/*
 * Connects and disconnects many times and watches for growth.
 *
 *   churn -s -p PORT -n COUNT              the server
 *   churn -c ADDRESS -p PORT -n COUNT      the client
 *
 * Each connection carries one message each way. File descriptors, threads and resident memory are counted after the
 * first tenth of the connections and at the end; the program fails if there are more of them then. Written against
 * the system's headers and the documented interface alone.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define MESSAGE 64          /* octets */
#define RSS_TOLERANCE 1024  /* kB: an allocator's own fluctuation, 0.1 kB a connection */

struct usage {
	long fds;
	long threads;
	long rss; /* kB */
};

static void fail(const char *call, int number)
{
	fprintf(stderr, "churn: connection %d: %s: %s\n", number, call, strerror(errno));
	exit(1);
}

static long entries(const char *folder)
{
	DIR *dir = opendir(folder);
	long count = 0;

	if (!dir)
		fail(folder, 0);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2; /* . and .. */
}

static struct usage usage_now(void)
{
	struct usage usage = { 0 };
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];

	/* The last connection may still be closing. */
	usleep(300000);
	usage.threads = entries("/proc/self/task");
	usage.fds = entries("/proc/self/fd") - 1;
	if (!status)
		fail("/proc/self/status", 0);
	while (fgets(line, sizeof line, status))
		sscanf(line, "VmRSS: %ld kB", &usage.rss);
	fclose(status);
	return usage;
}

static struct rdma_cm_id *endpoint(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE };
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(address, port, &hints, &found))
		fail("rdma_getaddrinfo", 0);
	if (rdma_create_ep(&id, found, NULL, &attributes))
		fail("rdma_create_ep", 0);
	rdma_freeaddrinfo(found);
	return id;
}

static void completed(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id, const char *what, int number)
{
	struct ibv_wc wc;

	if (get(id, &wc) != 1)
		fail(what, number);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "churn: connection %d: %s: %s\n", number, what, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

/* One connection from its set-up to its end. `id` is connected by `connect_call`, and gone afterwards. */
static void converse(struct rdma_cm_id *id, int (*connect_call)(struct rdma_cm_id *, struct rdma_conn_param *),
		     int speaks_first, int number)
{
	char out[MESSAGE], in[MESSAGE];
	struct ibv_mr *out_mr, *in_mr;

	memset(out, number & 0xff, sizeof out);
	memset(in, ~number & 0xff, sizeof in);
	if (!(out_mr = rdma_reg_msgs(id, out, sizeof out)) || !(in_mr = rdma_reg_msgs(id, in, sizeof in)))
		fail("rdma_reg_msgs", number);
	if (rdma_post_recv(id, NULL, in, sizeof in, in_mr))
		fail("rdma_post_recv", number);
	if (connect_call(id, NULL))
		fail("connect", number);
	if (!speaks_first)
		completed(rdma_get_recv_comp, id, "receive", number);
	if (rdma_post_send(id, NULL, out, sizeof out, out_mr, 0))
		fail("rdma_post_send", number);
	completed(rdma_get_send_comp, id, "send", number);
	if (speaks_first)
		completed(rdma_get_recv_comp, id, "receive", number);
	if (memcmp(out, in, sizeof out)) {
		fprintf(stderr, "churn: connection %d: other octets arrived\n", number);
		exit(1);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(out_mr);
	rdma_dereg_mr(in_mr);
	rdma_destroy_ep(id);
}

static void grown(const char *what, long before, long after, long tolerance)
{
	printf("churn: %s: %ld, then %ld\n", what, before, after);
	if (after > before + tolerance) {
		fprintf(stderr, "churn: %s grew\n", what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *address = NULL, *port = "7471";
	struct rdma_cm_id *listener = NULL, *id;
	struct usage early = { 0 }, late;
	int option, count = 1000, number;

	while ((option = getopt(argc, argv, "sc:p:n:")) != -1) {
		switch (option) {
		case 's': break;
		case 'c': address = optarg; break;
		case 'p': port = optarg; break;
		case 'n': count = atoi(optarg); break;
		default: return 2;
		}
	}
	if (!address) {
		listener = endpoint(NULL, port);
		if (rdma_listen(listener, 16))
			fail("rdma_listen", 0);
	}
	for (number = 1; number <= count; number++) {
		if (address)
			converse(endpoint(address, port), rdma_connect, 1, number);
		else if (rdma_get_request(listener, &id))
			fail("rdma_get_request", number);
		else
			converse(id, rdma_accept, 0, number);
		if (number == count / 10)
			early = usage_now();
	}
	late = usage_now();
	/* That may take some looks on a machine that stands still; what has grown stays. */
	for (int looks = 0; looks < 30 && (late.fds > early.fds || late.threads > early.threads); looks++)
		late = usage_now();
	if (listener)
		rdma_destroy_ep(listener);
	grown("file descriptors", early.fds, late.fds, 0);
	grown("threads", early.threads, late.threads, 0);
	grown("resident kB", early.rss, late.rss, RSS_TOLERANCE);
	printf("churn: %d connections, no growth\n", count);
	return 0;
}
