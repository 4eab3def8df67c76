/*
 * Whether a verbs device does what the man pages of libibverbs and librdmacm say: hundreds of small cases, on any
 * device. What the device reports absent is skipped, with the reason.
 */
#include "env.h"

/* The other end of a case that needs another process: connects, and waits to be killed. */
_Noreturn static void peer(int port)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *id;
	char service[16];

	snprintf(service, sizeof(service), "%d", ntohs((in_port_t)port));
	if (rdma_getaddrinfo(env.address, service, &hints, &info) != 0 || rdma_create_ep(&id, info, NULL, &init) != 0 ||
	    rdma_connect(id, &param) != 0) {
		perror("verbs-conformance --peer");
		exit(1);
	}
	for (;;)
		pause();
}

static void option(int letter, const char *value)
{
	switch (letter) {
	case 'd': env.device_name = value; break;
	case 'a':
		env.address = value;
		if (strcmp(env.address6 ? env.address6 : "", "::1") == 0)
			env.address6 = NULL;
		break;
	case 'P': peer(atoi(value));
	case '6': env.address6 = value; break;
	case 'b':
		if (strcmp(value, "cm") != 0 && strcmp(value, "gid") != 0) {
			fprintf(stderr, "verbs-conformance: --by is cm or gid, not %s\n", value);
			exit(2);
		}
		env.by = value[0] == 'g' ? BY_GID : BY_CM;
		break;
	}
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"address", required_argument, NULL, 'a'},
		{"peer", required_argument, NULL, 'P'},
		{"by", required_argument, NULL, 'b'},
		{NULL, 0, NULL, 0},
	};
	static const struct program program = {
		.name = "verbs-conformance",
		.options = "d:a:6:",
		.longs = longs,
		.usage = "  -d, --device NAME      of ibv_devices (the first)\n"
			 "  -a, --address ADDRESS  IPv4, of the device (127.0.0.1)\n"
			 "  -6 ADDRESS             IPv6, of the device (::1, or none with -a)\n"
			 "  --by cm|gid            connect through rdma_cm, or by GID and QPN (cm)\n",
		.option = option,
		.before = env_open,
	};

	return cases_main(argc, argv, &program);
}
