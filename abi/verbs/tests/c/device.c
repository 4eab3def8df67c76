/* The device as programs meet it at its edge: list, contexts, attributes, words. */
#include <dlfcn.h>

#include "edge.h"

/* What the device was asked to look like; the answers differ. */
static int iwarp_face(void)
{
	const char *face = getenv("WEFT_FACE");

	return face && !strcmp(face, "iwarp");
}

CASE("device.only-weft0-is-listed")
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);

	NEED(list);
	EQ(count, 1);
	CHECK(list[0] && !list[1]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "weft0"));
	EQ(list[0]->node_type, iwarp_face() ? IBV_NODE_RNIC : IBV_NODE_CA);
	EQ(list[0]->transport_type, iwarp_face() ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB);
	CHECK(ibv_get_device_guid(list[0]) != 0);
	EQ(ibv_get_device_index(list[0]), -1);
	ibv_free_device_list(list);
	ibv_free_device_list(NULL);
}

CASE("device.the-list-again-names-the-same-device")
{
	struct ibv_device **list = ibv_get_device_list(NULL), **again = ibv_get_device_list(NULL);

	CHECK(list && again && again[0] == list[0]);
	ibv_free_device_list(again);
	ibv_free_device_list(list);
}

CASE("device.librdmacm-shares-it")
{
	int count = -1;
	struct ibv_context **devices = rdma_get_devices(&count);

	NEED(devices);
	EQ(count, 1);
	CHECK(devices[0] && !devices[1]);
	CHECK(devices[0]->device == env.ctx->device);
	rdma_free_devices(devices);
}

CASE("device.a-context-is-as-inline-functions-want-it")
{
	struct ibv_context *second = ibv_open_device(env.ctx->device);
	struct verbs_context *verbs = verbs_get_ctx(env.ctx);

	CHECK(env.ctx->abi_compat == __VERBS_ABI_IS_EXTENDED);
	NEED(second && verbs);
	EQ(sizeof(*verbs), 648);
	EQ(verbs->sz, sizeof(*verbs));
	CHECK(verbs->query_port && verbs->query_device_ex && verbs->create_qp_ex && verbs->create_srq_ex);
	CHECK(env.ctx->ops.poll_cq && env.ctx->ops.req_notify_cq && env.ctx->ops.post_send && env.ctx->ops.post_recv &&
	      env.ctx->ops.post_srq_recv);
	CHECK(env.ctx->async_fd >= 0);
	CHECK(env.ctx->num_comp_vectors >= 1);
	CHECK(env.ctx != second && env.ctx->async_fd != second->async_fd);
	EQ(ibv_close_device(second), 0);
}

CASE("device.a-closed-context-closes-its-descriptor")
{
	struct ibv_context *second = ibv_open_device(env.ctx->device);

	NEED(second);
	int fd = second->async_fd;
	EQ(ibv_close_device(second), 0);
	FAILS(fcntl(fd, F_GETFD), EBADF);
	EQ(ibv_close_device(env.ctx), 0);
}

CASE("device.attributes")
{
	struct ibv_device_attr attr;

	memset(&attr, 0xee, sizeof(attr));
	EQ(ibv_query_device(env.ctx, &attr), 0);
	EQ(attr.phys_port_cnt, 1);
	CHECK(attr.max_qp > 0 && attr.max_cq > 0 && attr.max_mr > 0 && attr.max_pd > 0 && attr.max_srq > 0);
	CHECK(attr.max_qp_wr >= 1024 && attr.max_cqe >= 1024 && attr.max_srq_wr >= 1024);
	CHECK(attr.max_sge >= 16 && attr.max_sge_rd >= 1 && attr.max_srq_sge >= 1);
	CHECK(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0);
	EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
	CHECK(attr.max_mw > 0);
	EQ(attr.node_guid, ibv_get_device_guid(env.ctx->device));
	CHECK(memchr(attr.fw_ver, 0, sizeof(attr.fw_ver)));
}

CASE("device.extended-attributes")
{
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	struct ibv_device_attr_ex extended;

	memset(&extended, 0xee, sizeof(extended));
	EQ(ibv_query_device_ex(env.ctx, NULL, &extended), 0);
	SAME(&extended.orig_attr, &env.dev, sizeof(env.dev));
	EQ(extended.comp_mask, 0);
	EQ(extended.odp_caps.general_caps, 0);
	EQ(extended.phys_port_cnt_ex, 1);
	EQ(ibv_query_device_ex(env.ctx, &input, &extended), EINVAL);
}

CASE("device.extended-attributes-for-a-smaller-structure")
{
	unsigned char room[sizeof(struct ibv_device_attr_ex)];

	memset(room, 0xee, sizeof(room));
	EQ(verbs_get_ctx(env.ctx)->query_device_ex(env.ctx, NULL, (void *)room, sizeof(env.dev) + 8), 0);
	SAME(room, &env.dev, sizeof(env.dev));
	EQ(room[sizeof(env.dev) + 8], 0xee);
}

CASE("device.port")
{
	struct ibv_port_attr port;

	memset(&port, 0xee, sizeof(port));
	EQ(ibv_query_port(env.ctx, 1, &port), 0);
	EQ(port.state, IBV_PORT_ACTIVE);
	EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= port.max_mtu);
	CHECK(port.max_msg_sz >= 1u << 30);
	CHECK(iwarp_face() ? port.gid_tbl_len == 1 : port.gid_tbl_len >= 1);
	EQ(port.pkey_tbl_len, 1);
	EQ(port.port_cap_flags2, 0);
	EQ(ibv_query_port(env.ctx, 0, &port), EINVAL);
	EQ(ibv_query_port(env.ctx, 2, &port), EINVAL);
}

CASE("device.port-as-old-programs-ask")
{
	int (*old)(struct ibv_context *, uint8_t, void *) = dlsym(RTLD_DEFAULT, "ibv_query_port");
	struct ibv_port_attr port;

	NEED(old);
	memset(&port, 0xee, sizeof(port));
	EQ(old(env.ctx, 1, &port), 0);
	EQ(port.state, IBV_PORT_ACTIVE);
	EQ(port.port_cap_flags2, 0xeeee);
}

CASE("device.gids")
{
	union ibv_gid gid, none = {};
	struct ibv_gid_entry entry, entries[64];
	int length = env.port.gid_tbl_len, type = -1;
	int (*gid_type)(struct ibv_context *, uint8_t, unsigned, int *) = dlsym(RTLD_DEFAULT, "ibv_query_gid_type");

	EQ(ibv_query_gid(env.ctx, 1, 0, &gid), 0);
	CHECK(memcmp(&gid, &none, sizeof(gid)));
	FAILS(ibv_query_gid(env.ctx, 1, length, &gid), EINVAL);
	FAILS(ibv_query_gid(env.ctx, 1, -1, &gid), EINVAL);
	FAILS(ibv_query_gid(env.ctx, 2, 0, &gid), EINVAL);
	EQ(ibv_query_gid_ex(env.ctx, 1, 0, &entry, 0), 0);
	SAME(&entry.gid, &gid, sizeof(gid));
	EQ(entry.port_num, 1);
	EQ(entry.gid_index, 0);
	EQ(entry.gid_type, iwarp_face() ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2);
	CHECK(entry.ndev_ifindex > 0);
	EQ(ibv_query_gid_ex(env.ctx, 1, length, &entry, 0), EINVAL);
	EQ(ibv_query_gid_ex(env.ctx, 1, 0, &entry, 0), 0);
	EQ(ibv_query_gid_ex(env.ctx, 1, 0, &entry, 1), EOPNOTSUPP);
	EQ(ibv_query_gid_table(env.ctx, entries, 64, 0), length);
	SAME(&entries[0], &entry, sizeof(entry));
	EQ(ibv_query_gid_table(env.ctx, entries, 0, 0), -EINVAL);
	EQ(ibv_query_gid_table(env.ctx, entries, 64, 1), -EOPNOTSUPP);
	NEED(gid_type);
	EQ(gid_type(env.ctx, 1, 0, &type), 0);
	EQ(type, iwarp_face() ? 0 : 1);
	FAILS(gid_type(env.ctx, 1, length, &type), EINVAL);
}

CASE("device.partition-keys")
{
	uint16_t pkey = 0;

	EQ(ibv_query_pkey(env.ctx, 1, 0, &pkey), 0);
	EQ(pkey, 0xffff);
	FAILS(ibv_query_pkey(env.ctx, 1, 1, &pkey), EINVAL);
	EQ(ibv_get_pkey_index(env.ctx, 1, htons(0xffff)), 0);
	EQ(ibv_get_pkey_index(env.ctx, 1, htons(0x8001)), -1);
}

CASE("device.what-sysfs-would-say")
{
	char text[16];
	int (*read_file)(const char *, const char *, char *, size_t) = dlsym(RTLD_DEFAULT, "ibv_read_sysfs_file");
	const char *path = env.ctx->device->ibdev_path;

	NEED(read_file);
	EQ(read_file(path, "board_id", text, sizeof(text)), -1);
	EQ(read_file(NULL, "ports/1/link_layer", text, sizeof(text)), -1);
	EQ(read_file(path, "ports/1/link_layer", text, sizeof(text)), 8);
	CHECK(!strcmp(text, "Ethernet"));
	memset(text, 'x', sizeof(text));
	EQ(read_file(path, "ports/1/link_layer", text, 4), 4);
	CHECK(!memcmp(text, "Ethex", 5));
}

CASE("device.numbers-in-words")
{
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_RNIC), "iWARP NIC"));
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown"));
	CHECK(!strcmp(ibv_node_type_str(99), "unknown"));
	CHECK(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
	CHECK(!strcmp(ibv_port_state_str(-1), "unknown"));
	CHECK(!strcmp(ibv_event_type_str(IBV_EVENT_CQ_ERR), "CQ error"));
	CHECK(!strcmp(ibv_event_type_str(IBV_EVENT_WQ_FATAL), "WQ fatal"));
	CHECK(!strcmp(ibv_event_type_str(20), "unknown"));
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success"));
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error"));
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous"));
	CHECK(!strcmp(ibv_wc_status_str(24), "unknown"));
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED"));
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
	CHECK(!strcmp(rdma_event_str(16), "UNKNOWN EVENT"));
}

CASE("device.rates")
{
	EQ(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
	EQ(ibv_rate_to_mult(IBV_RATE_MAX), -1);
	EQ(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
	EQ(mult_to_ibv_rate(3), IBV_RATE_MAX);
	EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
	EQ(mbps_to_ibv_rate(103125), IBV_RATE_100_GBPS);
	EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

CASE("device.fork-needs-no-preparation")
{
	EQ(ibv_fork_init(), 0);
	EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

/* The installed library's words and rates, where there is one: ours have to be the same. */
CASE("device.words-of-the-installed-library")
{
	void *real = dlopen("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!real)
		SKIP("libibverbs is not installed");
	const char *(*node)(int) = dlsym(real, "ibv_node_type_str");
	const char *(*state)(int) = dlsym(real, "ibv_port_state_str");
	const char *(*event)(int) = dlsym(real, "ibv_event_type_str");
	const char *(*status)(int) = dlsym(real, "ibv_wc_status_str");
	int (*mult)(int) = dlsym(real, "ibv_rate_to_mult");
	int (*mbps)(int) = dlsym(real, "ibv_rate_to_mbps");
	int (*from_mult)(int) = dlsym(real, "mult_to_ibv_rate");
	int (*from_mbps)(int) = dlsym(real, "mbps_to_ibv_rate");
	NEED(node && state && event && status && mult && mbps && from_mult && from_mbps);
	for (int i = -2; i < 40; i++) {
		CHECK(!strcmp(node(i), ibv_node_type_str(i)));
		CHECK(!strcmp(state(i), ibv_port_state_str(i)));
		CHECK(!strcmp(event(i), ibv_event_type_str(i)));
		CHECK(!strcmp(status(i), ibv_wc_status_str(i)));
		EQ(ibv_rate_to_mult(i), mult(i));
		EQ(ibv_rate_to_mbps(i), mbps(i));
		EQ(mbps_to_ibv_rate(ibv_rate_to_mbps(i)), from_mbps(mbps(i)));
	}
	for (int i = 0; i < 1000; i++)
		EQ(mult_to_ibv_rate(i), from_mult(i));
}

/* --- what is refused is said once in a process, however often it is asked for */

CASE("said.a-refused-import-once")
{
	listen_to_stderr();
	NONE(ibv_import_device(env.ctx->cmd_fd), EOPNOTSUPP);
	NONE(ibv_import_device(-1), EOPNOTSUPP);
	EQ(lines_said("^weft: warn: ibv_import_device: a device that another process"), 1);
}

CASE("said.refused-port-spaces-once")
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	NEED(channel);
	listen_to_stderr();
	FAILS(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), EOPNOTSUPP);
	FAILS(rdma_create_id(channel, &id, NULL, RDMA_PS_IB), EOPNOTSUPP);
	EQ(lines_said("^weft: warn: rdma_create_id: the port spaces .* not served"), 1);
	rdma_destroy_event_channel(channel);
}
