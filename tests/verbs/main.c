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

static void open_device(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count), *found = NULL;

	for (int i = 0; list && i < count && !found; i++)
		if (!env.device_name || strcmp(ibv_get_device_name(list[i]), env.device_name) == 0)
			found = list[i];
	if (!CHECKF(found, "there is no device %s among %d", env.device_name ? env.device_name : "(any)", count))
		case_end();
	env.iwarp = found->transport_type == IBV_TRANSPORT_IWARP;
	NEED(env.ctx = ibv_open_device(found));
	ibv_free_device_list(list);
}

/* The last GID of the table that is of RoCE version 2, if there is one: the one that programs take. */
static void choose_gid(void)
{
	for (int i = 0; i < env.port.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		if (ibv_query_gid_ex(env.ctx, PORT, (uint32_t)i, &entry, 0) != 0)
			continue;
		if (i == 0 || entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
			env.gid_index = i;
			env.gid = entry.gid;
			if (entry.gid.global.subnet_prefix == 0)
				return;
		}
	}
}

static void before(void)
{
	open_device();
	NEED(ibv_query_device(env.ctx, &env.dev) == 0);
	if (ibv_query_device_ex(env.ctx, NULL, &env.devx) != 0)
		env.devx = (struct ibv_device_attr_ex){.orig_attr = env.dev};
	NEED(ibv_query_port(env.ctx, PORT, &env.port) == 0);
	choose_gid();
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
		.before = before,
	};

	return cases_main(argc, argv, &program);
}
