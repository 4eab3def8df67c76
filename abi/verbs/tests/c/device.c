/* The device: list, contexts, attributes, words. */
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "pair.h"

static struct ibv_context *open_weft0(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	NEED(list && count >= 1);
	context = ibv_open_device(list[0]);
	NEED(context);
	ibv_free_device_list(list);
	return context;
}

/* What the device was asked to look like; the answers differ. */
static int iwarp_face(void)
{
	const char *face = getenv("WEFT_FACE");

	return face && !strcmp(face, "iwarp");
}

static void the_list(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count), **again;

	begin_case("only weft0 is listed");
	NEED(list);
	EQUAL(count, 1);
	CHECK(list[0] && !list[1]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "weft0"));
	EQUAL(list[0]->node_type, iwarp_face() ? IBV_NODE_RNIC : IBV_NODE_CA);
	EQUAL(list[0]->transport_type, iwarp_face() ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB);
	CHECK(ibv_get_device_guid(list[0]) != 0);
	EQUAL(ibv_get_device_index(list[0]), -1);

	begin_case("the list again names the same device");
	again = ibv_get_device_list(NULL);
	CHECK(again && again[0] == list[0]);
	ibv_free_device_list(again);
	ibv_free_device_list(list);
	ibv_free_device_list(NULL);

	begin_case("librdmacm shares the device");
	struct ibv_context **devices = rdma_get_devices(&count);
	struct ibv_context *context = open_weft0();
	NEED(devices);
	EQUAL(count, 1);
	CHECK(devices[0] && !devices[1]);
	CHECK(devices[0]->device == context->device);
	rdma_free_devices(devices);
	EQUAL(ibv_close_device(context), 0);
}

static void the_context(void)
{
	struct ibv_context *context = open_weft0(), *second = open_weft0();
	struct verbs_context *verbs;

	begin_case("a context as inline functions want it");
	CHECK(context->abi_compat == __VERBS_ABI_IS_EXTENDED);
	verbs = verbs_get_ctx(context);
	NEED(verbs);
	EQUAL(sizeof(*verbs), 648);
	EQUAL(verbs->sz, sizeof(*verbs));
	CHECK(verbs->query_port && verbs->query_device_ex && verbs->create_qp_ex && verbs->create_srq_ex);
	CHECK(context->ops.poll_cq && context->ops.req_notify_cq && context->ops.post_send &&
	      context->ops.post_recv && context->ops.post_srq_recv);
	CHECK(context->async_fd >= 0);
	CHECK(context->num_comp_vectors >= 1);
	CHECK(context != second && context->async_fd != second->async_fd);

	begin_case("a closed context closes its descriptor");
	int fd = second->async_fd;
	EQUAL(ibv_close_device(second), 0);
	MINUS_ONE(fcntl(fd, F_GETFD), EBADF);
	EQUAL(ibv_close_device(context), 0);
}

static void attributes(void)
{
	struct ibv_context *context = open_weft0();
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex extended;
	struct ibv_port_attr port;

	begin_case("ibv_query_device");
	memset(&attr, 0xee, sizeof(attr));
	EQUAL(ibv_query_device(context, &attr), 0);
	EQUAL(attr.phys_port_cnt, 1);
	CHECK(attr.max_qp > 0 && attr.max_cq > 0 && attr.max_mr > 0 && attr.max_pd > 0 && attr.max_srq > 0);
	CHECK(attr.max_qp_wr >= 1024 && attr.max_cqe >= 1024 && attr.max_srq_wr >= 1024);
	CHECK(attr.max_sge >= 16 && attr.max_sge_rd >= 1 && attr.max_srq_sge >= 1);
	CHECK(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0);
	EQUAL(attr.atomic_cap, IBV_ATOMIC_HCA);
	CHECK(attr.max_mw > 0);
	EQUAL(attr.node_guid, ibv_get_device_guid(context->device));
	CHECK(memchr(attr.fw_ver, 0, sizeof(attr.fw_ver)));

	begin_case("ibv_query_device_ex");
	memset(&extended, 0xee, sizeof(extended));
	EQUAL(ibv_query_device_ex(context, NULL, &extended), 0);
	CHECK(!memcmp(&extended.orig_attr, &attr, sizeof(attr)));
	EQUAL(extended.comp_mask, 0);
	EQUAL(extended.odp_caps.general_caps, 0);
	EQUAL(extended.phys_port_cnt_ex, 1);
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	EQUAL(ibv_query_device_ex(context, &input, &extended), EINVAL);

	begin_case("ibv_query_device_ex for a smaller structure");
	unsigned char room[sizeof(extended)];
	memset(room, 0xee, sizeof(room));
	EQUAL(verbs_get_ctx(context)->query_device_ex(context, NULL, (void *)room, sizeof(attr) + 8), 0);
	CHECK(!memcmp(room, &attr, sizeof(attr)));
	EQUAL(room[sizeof(attr) + 8], 0xee);

	begin_case("ibv_query_port");
	memset(&port, 0xee, sizeof(port));
	EQUAL(ibv_query_port(context, 1, &port), 0);
	EQUAL(port.state, IBV_PORT_ACTIVE);
	EQUAL(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= port.max_mtu);
	CHECK(port.max_msg_sz >= 1u << 30);
	CHECK(iwarp_face() ? port.gid_tbl_len == 1 : port.gid_tbl_len >= 1);
	EQUAL(port.pkey_tbl_len, 1);
	EQUAL(port.port_cap_flags2, 0);
	EQUAL(ibv_query_port(context, 0, &port), EINVAL);
	EQUAL(ibv_query_port(context, 2, &port), EINVAL);

	begin_case("ibv_query_port as old programs call it");
	int (*old)(struct ibv_context *, uint8_t, void *) = dlsym(RTLD_DEFAULT, "ibv_query_port");
	NEED(old);
	memset(&port, 0xee, sizeof(port));
	EQUAL(old(context, 1, &port), 0);
	EQUAL(port.state, IBV_PORT_ACTIVE);
	EQUAL(port.port_cap_flags2, 0xeeee);
	EQUAL(ibv_close_device(context), 0);
}

static void gids(void)
{
	struct ibv_context *context = open_weft0();
	union ibv_gid gid, none = {};
	struct ibv_gid_entry entry, entries[64];
	struct ibv_port_attr port;
	int length;
	uint16_t pkey = 0;
	int type = -1;
	int (*gid_type)(struct ibv_context *, uint8_t, unsigned, int *) =
		dlsym(RTLD_DEFAULT, "ibv_query_gid_type");

	begin_case("GIDs");
	EQUAL(ibv_query_port(context, 1, &port), 0);
	length = port.gid_tbl_len;
	EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
	CHECK(memcmp(&gid, &none, sizeof(gid)));
	MINUS_ONE(ibv_query_gid(context, 1, length, &gid), EINVAL);
	MINUS_ONE(ibv_query_gid(context, 1, -1, &gid), EINVAL);
	MINUS_ONE(ibv_query_gid(context, 2, 0, &gid), EINVAL);
	EQUAL(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	CHECK(!memcmp(&entry.gid, &gid, sizeof(gid)));
	EQUAL(entry.port_num, 1);
	EQUAL(entry.gid_index, 0);
	EQUAL(entry.gid_type, iwarp_face() ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2);
	CHECK(entry.ndev_ifindex > 0);
	EQUAL(ibv_query_gid_ex(context, 1, length, &entry, 0), EINVAL);
	EQUAL(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	EQUAL(ibv_query_gid_ex(context, 1, 0, &entry, 1), EOPNOTSUPP);
	EQUAL(ibv_query_gid_table(context, entries, 64, 0), length);
	CHECK(!memcmp(&entries[0], &entry, sizeof(entry)));
	EQUAL(ibv_query_gid_table(context, entries, 0, 0), -EINVAL);
	EQUAL(ibv_query_gid_table(context, entries, 64, 1), -EOPNOTSUPP);
	NEED(gid_type);
	EQUAL(gid_type(context, 1, 0, &type), 0);
	EQUAL(type, iwarp_face() ? 0 : 1);
	MINUS_ONE(gid_type(context, 1, length, &type), EINVAL);

	begin_case("partition keys");
	EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
	EQUAL(pkey, 0xffff);
	MINUS_ONE(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
	EQUAL(ibv_get_pkey_index(context, 1, htons(0xffff)), 0);
	EQUAL(ibv_get_pkey_index(context, 1, htons(0x8001)), -1);

	begin_case("what sysfs would say");
	char text[16];
	int (*read_file)(const char *, const char *, char *, size_t) =
		dlsym(RTLD_DEFAULT, "ibv_read_sysfs_file");
	NEED(read_file);
	EQUAL(read_file(context->device->ibdev_path, "board_id", text, sizeof(text)), -1);
	EQUAL(read_file(NULL, "ports/1/link_layer", text, sizeof(text)), -1);
	EQUAL(read_file(context->device->ibdev_path, "ports/1/link_layer", text, sizeof(text)), 8);
	CHECK(!strcmp(text, "Ethernet"));
	memset(text, 'x', sizeof(text));
	EQUAL(read_file(context->device->ibdev_path, "ports/1/link_layer", text, 4), 4);
	CHECK(!memcmp(text, "Ethex", 5));
	EQUAL(ibv_close_device(context), 0);
}

static void words(void)
{
	begin_case("numbers in words");
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

	begin_case("rates");
	EQUAL(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
	EQUAL(ibv_rate_to_mult(IBV_RATE_MAX), -1);
	EQUAL(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
	EQUAL(mult_to_ibv_rate(3), IBV_RATE_MAX);
	EQUAL(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
	EQUAL(mbps_to_ibv_rate(103125), IBV_RATE_100_GBPS);
	EQUAL(mbps_to_ibv_rate(1), IBV_RATE_MAX);

	begin_case("fork needs no preparation");
	EQUAL(ibv_fork_init(), 0);
	EQUAL(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

/* The installed library's words and rates, where there is one: ours have to be the same. */
static void the_same_words(void)
{
	void *real = dlopen("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!real) {
		skip_case("words of the installed library", "it is not installed");
		return;
	}
	begin_case("words of the installed library");
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
		EQUAL(ibv_rate_to_mult(i), mult(i));
		EQUAL(ibv_rate_to_mbps(i), mbps(i));
		EQUAL(mbps_to_ibv_rate(ibv_rate_to_mbps(i)), from_mbps(mbps(i)));
	}
	for (int i = 0; i < 1000; i++)
		EQUAL(mult_to_ibv_rate(i), from_mult(i));
}

int main(void)
{
	the_list();
	the_context();
	attributes();
	gids();
	words();
	the_same_words();
	end_program();
}
