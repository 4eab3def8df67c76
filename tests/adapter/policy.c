/*
 * A program that says how its connections send (weft/rdma.h). It has both ends of one.
 *
 *     policy ADDRESS
 *
 * Says "connected", as a line of JSON, and when it is told a line, "changed"; told another one it ends. The exit status
 * is 3 where the option is refused.
 */
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/rdma.h>

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(3);
}

static int ask(struct rdma_cm_id *id, const char *text, size_t octets)
{
	return rdma_set_option(id, RDMA_OPTION_WEFT, RDMA_OPTION_WEFT_TCP, (void *)text, octets);
}

static struct rdma_cm_id *taken;

static void *take(void *listener)
{
	need(rdma_get_request(listener, &taken) == 0, "rdma_get_request");
	need(rdma_accept(taken, NULL) == 0, "rdma_accept");
	return NULL;
}

static struct rdma_cm_id *endpoint(const char *address, const char *port, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .sq_sig_all = 1};
	struct rdma_cm_id *id;

	need(rdma_getaddrinfo(address, port, &hints, &found) == 0, "rdma_getaddrinfo");
	need(rdma_create_ep(&id, found, NULL, &init) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

int main(int count, char **words)
{
	pthread_t thread;
	char port[8], line[80];

	need(count == 2, "policy ADDRESS");
	struct rdma_cm_id *listener = endpoint(words[1], "0", RAI_PASSIVE);
	need(ask(listener, "reno", 4) == 0, "rdma_set_option");
	need(ask(listener, "renault", 7) == -1 && errno == EINVAL, "what is no policy");
	need(ask(listener, NULL, 4) == -1 && errno == EINVAL, "no text");
	need(rdma_set_option(listener, RDMA_OPTION_WEFT, 99, port, 1) == -1 && errno == ENOSYS, "another option");
	need(rdma_listen(listener, 1) == 0, "rdma_listen");
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(listener)));
	need(pthread_create(&thread, NULL, take, listener) == 0, "pthread_create");

	struct rdma_cm_id *id = endpoint(words[1], port, 0);
	need(ask(id, "rate=100Mbit acks=1/8", sizeof("rate=100Mbit acks=1/8")) == 0, "rdma_set_option");
	need(rdma_connect(id, NULL) == 0, "rdma_connect");
	need(pthread_join(thread, NULL) == 0, "pthread_join");
	puts("\"connected\"");
	fflush(stdout);
	need(fgets(line, sizeof(line), stdin) != NULL, "fgets");
	need(ask(id, "none", 4) == 0, "rdma_set_option");
	puts("\"changed\"");
	fflush(stdout);
	need(fgets(line, sizeof(line), stdin) != NULL, "fgets");
	rdma_disconnect(id);
	need(ask(id, "cubic", 5) == 0 || errno == EINVAL, "rdma_set_option of a connection that ends");
	rdma_destroy_ep(id);
	rdma_destroy_ep(taken);
	rdma_destroy_ep(listener);
	return 0;
}
