/* The list of devices, and what a device says of itself. */
#include "env.h"

CASE("device.list-ends-with-null")
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);

	NEED(list);
	CHECK(count >= 1);
	CHECK(list[count] == NULL);
	ibv_free_device_list(list);
}

CASE("device.list-needs-no-count")
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list);
	CHECK(list[0]);
	ibv_free_device_list(list);
}

CASE("device.open-outlives-the-list")
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;
	struct ibv_context *ctx;

	NEED(list && list[0]);
	NEED(ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	EQ(ibv_query_device(ctx, &attr), 0);
	CHECK(strlen(ibv_get_device_name(ctx->device)) > 0);
	EQ(ibv_close_device(ctx), 0);
}

CASE("device.two-contexts")
{
	struct ibv_context *other = ibv_open_device(env.ctx->device);
	struct ibv_pd *mine, *theirs;

	NEED(other);
	NEED(mine = ibv_alloc_pd(env.ctx));
	NEED(theirs = ibv_alloc_pd(other));
	CHECK(mine->context == env.ctx && theirs->context == other);
	EQ(ibv_dealloc_pd(theirs), 0);
	EQ(ibv_close_device(other), 0);
	EQ(ibv_dealloc_pd(mine), 0);
}

CASE("device.name-fits")
{
	const char *name = ibv_get_device_name(env.ctx->device);

	CHECK(name && *name && strlen(name) < IBV_SYSFS_NAME_MAX);
	CHECK(!strpbrk(name, "/ \t\n"));
}

CASE("device.guid-is-that-of-the-attributes")
{
	EQ(ibv_get_device_guid(env.ctx->device), env.dev.node_guid);
}

CASE("device.node-type-fits-the-transport")
{
	EQ(env.ctx->device->node_type, env.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA);
}

CASE("device.index-is-a-number-or-minus-one")
{
	CHECK(ibv_get_device_index(env.ctx->device) >= -1);
}

CASE("device.has-descriptors")
{
	CHECK(fcntl(env.ctx->async_fd, F_GETFL) >= 0);
	CHECK(env.ctx->num_comp_vectors >= 1);
}

CASE("device.firmware-version-ends")
{
	CHECK(memchr(env.dev.fw_ver, 0, sizeof(env.dev.fw_ver)));
}

CASE("device.limits-are-usable")
{
	const struct ibv_device_attr *d = &env.dev;

	CHECK(d->max_mr_size > 0);
	CHECK(d->page_size_cap > 0);
	CHECK(d->max_qp > 0 && d->max_qp_wr > 0 && d->max_sge > 0);
	CHECK(d->max_cq > 0 && d->max_cqe > 0);
	CHECK(d->max_mr > 0 && d->max_pd > 0);
	CHECK(d->max_qp_rd_atom > 0 && d->max_qp_init_rd_atom > 0 && d->max_res_rd_atom >= d->max_qp_rd_atom);
	CHECK(d->max_pkeys > 0);
	CHECK(d->phys_port_cnt >= 1);
	if (d->max_srq)
		CHECK(d->max_srq_wr > 0 && d->max_srq_sge > 0);
}

CASE("device.windows-are-counted-if-reported")
{
	unsigned windows =
		IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

	if (env.dev.device_cap_flags & windows)
		CHECK(env.dev.max_mw > 0);
	else
		EQ(env.dev.max_mw, 0);
}

CASE("device.window-type-2-is-of-one-kind")
{
	unsigned both = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

	CHECK((env.dev.device_cap_flags & both) != both);
}

CASE("device.query-ex-contains-the-plain-query")
{
	struct ibv_device_attr_ex ex;

	memset(&ex, 0xa5, sizeof(ex));
	EQ(ibv_query_device_ex(env.ctx, NULL, &ex), 0);
	SAME(&ex.orig_attr, &env.dev, sizeof(env.dev));
}

CASE("device.query-ex-flags-contain-the-plain-flags")
{
	EQ(env.devx.device_cap_flags_ex & 0xffffffff, env.dev.device_cap_flags);
}

CASE("device.query-ex-input-mask-of-the-unknown-is-refused")
{
	struct ibv_query_device_ex_input input = {.comp_mask = 0x80000000};
	struct ibv_device_attr_ex ex;

	EQ(ibv_query_device_ex(env.ctx, &input, &ex), EINVAL);
}

CASE("device.query-ex-input-of-nothing")
{
	struct ibv_query_device_ex_input input = {};
	struct ibv_device_attr_ex ex = {};

	EQ(ibv_query_device_ex(env.ctx, &input, &ex), 0);
	EQ(ex.orig_attr.max_qp, env.dev.max_qp);
}

CASE("device.query-ex-knows-no-comp-mask")
{
	EQ(env.devx.comp_mask, 0);
}

CASE("device.query-ex-odp-is-consistent")
{
	struct ibv_odp_caps *odp = &env.devx.odp_caps;

	if (!(odp->general_caps & IBV_ODP_SUPPORT))
		CHECK(!odp->per_transport_caps.rc_odp_caps && !odp->per_transport_caps.uc_odp_caps &&
		      !odp->per_transport_caps.ud_odp_caps);
	else
		CHECK(odp->per_transport_caps.rc_odp_caps);
}

CASE("device.query-ex-port-count")
{
	CHECK(env.devx.phys_port_cnt_ex == env.dev.phys_port_cnt || env.devx.phys_port_cnt_ex == 0);
}

CASE("device.rt-values-ex-give-a-clock-or-refuse")
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	int error = ibv_query_rt_values_ex(env.ctx, &values);

	if (says_unsupported(error))
		SKIP("the device has no clock to read (%s)", strerror(error));
	EQ(error, 0);
	if (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		CHECK(values.raw_clock.tv_sec || values.raw_clock.tv_nsec);
}

/* --- the port */

CASE("port.is-active")
{
	EQ(env.port.state, IBV_PORT_ACTIVE);
	EQ(env.port.phys_state, 5);
}

CASE("port.mtus")
{
	CHECK(env.port.active_mtu >= IBV_MTU_256 && env.port.active_mtu <= env.port.max_mtu);
	CHECK(env.port.max_mtu <= IBV_MTU_4096);
}

CASE("port.message-size")
{
	CHECK(env.port.max_msg_sz >= 1 << 23);
}

CASE("port.tables-have-entries")
{
	CHECK(env.port.gid_tbl_len >= 1);
	CHECK(env.port.pkey_tbl_len >= 1 || env.iwarp);
}

CASE("port.link-layer-is-told")
{
	CHECK(env.port.link_layer == IBV_LINK_LAYER_ETHERNET || env.port.link_layer == IBV_LINK_LAYER_INFINIBAND);
}

CASE("port.width-and-speed-are-codes")
{
	CHECK(env.port.active_width && (env.port.active_width & (env.port.active_width - 1)) == 0);
	CHECK(env.port.active_speed && (env.port.active_speed & (env.port.active_speed - 1)) == 0);
}

CASE("port.0-is-none")
{
	struct ibv_port_attr attr;

	CHECK(ibv_query_port(env.ctx, 0, &attr) != 0);
}

CASE("port.past-the-last-is-none")
{
	struct ibv_port_attr attr;

	CHECK(ibv_query_port(env.ctx, env.dev.phys_port_cnt + 1, &attr) != 0);
}

CASE("port.gid")
{
	union ibv_gid gid;

	memset(&gid, 0, sizeof(gid));
	EQ(ibv_query_gid(env.ctx, PORT, 0, &gid), 0);
	CHECK(gid.global.subnet_prefix || gid.global.interface_id);
}

CASE("port.gid-past-the-table")
{
	union ibv_gid gid;

	EQ(ibv_query_gid(env.ctx, PORT, env.port.gid_tbl_len, &gid), -1);
}

CASE("port.gid-of-index-minus-one")
{
	union ibv_gid gid;

	EQ(ibv_query_gid(env.ctx, PORT, -1, &gid), -1);
}

CASE("port.gid-of-no-port")
{
	union ibv_gid gid;

	EQ(ibv_query_gid(env.ctx, 99, 0, &gid), -1);
}

CASE("port.gid-ex-is-the-same-gid")
{
	struct ibv_gid_entry entry = {};
	union ibv_gid gid;

	NEED(ibv_query_gid(env.ctx, PORT, 0, &gid) == 0);
	EQ(ibv_query_gid_ex(env.ctx, PORT, 0, &entry, 0), 0);
	SAME(&entry.gid, &gid, sizeof(gid));
	EQ(entry.gid_index, 0);
	EQ(entry.port_num, PORT);
	CHECK(entry.gid_type <= IBV_GID_TYPE_ROCE_V2);
}

CASE("port.gid-ex-flags-are-none")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_ex(env.ctx, PORT, 0, &entry, 1) != 0);
}

CASE("port.gid-ex-past-the-table")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_ex(env.ctx, PORT, (uint32_t)env.port.gid_tbl_len, &entry, 0) != 0);
}

CASE("port.gid-ex-of-no-port")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_ex(env.ctx, 99, 0, &entry, 0) != 0);
}

CASE("port.gid-table-agrees-with-single-queries")
{
	struct ibv_gid_entry entries[1024], one;
	ssize_t count = ibv_query_gid_table(env.ctx, entries, 1024, 0);

	CHECK(count >= 1 && count <= env.port.gid_tbl_len * env.dev.phys_port_cnt);
	for (ssize_t i = 0; i < count; i++) {
		EQ(ibv_query_gid_ex(env.ctx, entries[i].port_num, entries[i].gid_index, &one, 0), 0);
		SAME(&one.gid, &entries[i].gid, sizeof(one.gid));
		EQ(one.gid_type, entries[i].gid_type);
	}
}

CASE("port.gid-table-too-small-fails")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_table(env.ctx, &entry, 0, 0) < 0);
}

CASE("port.gid-table-flags-are-none")
{
	struct ibv_gid_entry entries[1024];

	CHECK(ibv_query_gid_table(env.ctx, entries, 1024, 1) < 0);
}

CASE("port.roce-gids-are-of-addresses")
{
	need_infiniband();
	if (env.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		SKIP("the link layer is InfiniBand");
	struct ibv_gid_entry entries[1024];
	ssize_t count = ibv_query_gid_table(env.ctx, entries, 1024, 0);
	NEED(count >= 1);
	for (ssize_t i = 0; i < count; i++) {
		CHECK(entries[i].gid_type == IBV_GID_TYPE_ROCE_V1 || entries[i].gid_type == IBV_GID_TYPE_ROCE_V2);
		CHECK(entries[i].ndev_ifindex > 0);
	}
}

CASE("port.pkey-is-a-full-member")
{
	__be16 pkey = 0;

	if (env.port.pkey_tbl_len == 0)
		SKIP("the device reports no partition keys");
	EQ(ibv_query_pkey(env.ctx, PORT, 0, &pkey), 0);
	CHECK(ntohs(pkey) & 0x8000);
}

CASE("port.pkey-past-the-table")
{
	__be16 pkey;

	EQ(ibv_query_pkey(env.ctx, PORT, env.port.pkey_tbl_len, &pkey), -1);
}

CASE("port.pkey-index-finds-the-pkey")
{
	__be16 pkey = 0;

	if (env.port.pkey_tbl_len == 0)
		SKIP("the device reports no partition keys");
	NEED(ibv_query_pkey(env.ctx, PORT, 0, &pkey) == 0);
	EQ(ibv_get_pkey_index(env.ctx, PORT, pkey), 0);
	EQ(ibv_get_pkey_index(env.ctx, PORT, htons(0x1234)), -1);
}

/* --- strings and numbers, which need no device */

static void status_string(long status)
{
	const char *text = ibv_wc_status_str((enum ibv_wc_status)status);

	CHECK(text && *text);
	CHECK(strcmp(text, "unknown") != 0);
}

static void event_string(long event)
{
	const char *text = ibv_event_type_str((enum ibv_event_type)event);

	CHECK(text && *text);
	CHECK(strcmp(text, "unknown") != 0);
}

static void cm_string(long event)
{
	const char *text = rdma_event_str((enum rdma_cm_event_type)event);

	CHECK(text && strncmp(text, "RDMA_CM_EVENT_", 14) == 0);
}

static void rate(long at)
{
	enum ibv_rate code = (enum ibv_rate)at;
	int mult = ibv_rate_to_mult(code), mbps = ibv_rate_to_mbps(code);

	CHECK(mbps > 0);
	EQ(mbps_to_ibv_rate(mbps), code);
	/* Multiples of 2.5 Gbit/s are exact, others have none. */
	if (mult > 0)
		EQ(mult_to_ibv_rate(mult), code);
}

CASES
{
	for (long i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		ADD(status_string, i, "strings.completion-status-%ld", i);
	for (long i = IBV_EVENT_CQ_ERR; i <= IBV_EVENT_WQ_FATAL; i++)
		ADD(event_string, i, "strings.asynchronous-event-%ld", i);
	for (long i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++)
		ADD(cm_string, i, "strings.cm-event-%ld", i);
	static const enum ibv_rate rates[] = {IBV_RATE_2_5_GBPS, IBV_RATE_5_GBPS,   IBV_RATE_10_GBPS,
					      IBV_RATE_20_GBPS,	 IBV_RATE_30_GBPS,  IBV_RATE_40_GBPS,
					      IBV_RATE_60_GBPS,	 IBV_RATE_80_GBPS,  IBV_RATE_120_GBPS,
					      IBV_RATE_14_GBPS,	 IBV_RATE_56_GBPS,  IBV_RATE_112_GBPS,
					      IBV_RATE_168_GBPS, IBV_RATE_25_GBPS,  IBV_RATE_100_GBPS,
					      IBV_RATE_200_GBPS, IBV_RATE_300_GBPS, IBV_RATE_28_GBPS,
					      IBV_RATE_50_GBPS,	 IBV_RATE_400_GBPS, IBV_RATE_600_GBPS};
	for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		ADD(rate, rates[i], "strings.rate-%d", (int)rates[i]);
}

CASE("strings.unknown-status")
{
	CHECK(ibv_wc_status_str((enum ibv_wc_status)999));
	CHECK(strstr(ibv_wc_status_str((enum ibv_wc_status)999), "unknown"));
}

CASE("strings.unknown-event")
{
	CHECK(strstr(ibv_event_type_str((enum ibv_event_type)999), "unknown"));
}

CASE("strings.unknown-cm-event")
{
	CHECK(strcasestr(rdma_event_str((enum rdma_cm_event_type)999), "unknown"));
}

CASE("strings.node-types")
{
	for (int i = IBV_NODE_CA; i <= IBV_NODE_UNSPECIFIED; i++)
		CHECK(*ibv_node_type_str((enum ibv_node_type)i));
	CHECK(strstr(ibv_node_type_str((enum ibv_node_type)99), "unknown"));
	CHECK(strcasestr(ibv_node_type_str(IBV_NODE_RNIC), "iWARP"));
}

CASE("strings.port-states")
{
	for (int i = IBV_PORT_NOP; i <= IBV_PORT_ACTIVE_DEFER; i++)
		CHECK(*ibv_port_state_str((enum ibv_port_state)i));
	CHECK(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active") == 0);
	CHECK(strcmp(ibv_port_state_str((enum ibv_port_state)99), "unknown") == 0);
}

CASE("strings.a-rate-of-none")
{
	EQ(ibv_rate_to_mult((enum ibv_rate)9999), -1);
	EQ(ibv_rate_to_mbps((enum ibv_rate)9999), -1);
	EQ(mult_to_ibv_rate(9999), IBV_RATE_MAX);
	EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

CASE("strings.rkey-increments-its-low-octet")
{
	EQ(ibv_inc_rkey(0x12345600), 0x12345601);
	EQ(ibv_inc_rkey(0x123456fe), 0x123456ff);
	EQ(ibv_inc_rkey(0x123456ff), 0x12345600);
}

CASE("fork.init-succeeds-and-is-told")
{
	EQ(ibv_fork_init(), 0);
	CHECK(ibv_is_fork_initialized() == IBV_FORK_ENABLED || ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
}

/* --- asynchronous events */

CASE("async.is-quiet-on-a-new-device")
{
	CHECK(!readable(env.ctx->async_fd, 0));
}

CASE("async.non-blocking")
{
	struct ibv_async_event event;

	NEED(fcntl(env.ctx->async_fd, F_SETFL, fcntl(env.ctx->async_fd, F_GETFL) | O_NONBLOCK) == 0);
	FAILS(ibv_get_async_event(env.ctx, &event), EAGAIN);
}

/* A device's other verbs: either they work or they say so; nothing in between. */

CASE("absent.device-memory")
{
	struct ibv_alloc_dm_attr attr = {.length = 4096};

	if (env.devx.max_dm_size)
		SKIP("the device reports device memory");
	errno = 0;
	CHECK(ibv_alloc_dm(env.ctx, &attr) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("absent.xrc-domains")
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	if (env.dev.device_cap_flags & IBV_DEVICE_XRC)
		SKIP("the device reports XRC");
	errno = 0;
	CHECK(ibv_open_xrcd(env.ctx, &attr) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("absent.on-demand-paging")
{
	struct ibv_pd *pd = a_pd();

	if (env.devx.odp_caps.general_caps & IBV_ODP_SUPPORT)
		SKIP("the device reports on-demand paging");
	errno = 0;
	CHECK(ibv_reg_mr(pd, some_memory(4096), 4096, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("absent.implicit-on-demand-paging")
{
	struct ibv_pd *pd = a_pd();

	if (env.devx.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT)
		SKIP("the device reports implicit on-demand paging");
	CHECK(ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE) == NULL);
}

CASE("absent.flow-steering")
{
	struct ibv_flow_attr attr = {.size = sizeof(attr), .port = PORT};
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));

	if (env.dev.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING)
		SKIP("the device reports flow steering");
	errno = 0;
	CHECK(ibv_create_flow(qp, &attr) == NULL);
	CHECK(errno);
}

CASE("absent.work-queues")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = a_cq(8)};

	if (env.devx.max_wq_type_rq)
		SKIP("the device reports work queues");
	errno = 0;
	CHECK(ibv_create_wq(env.ctx, &attr) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("absent.counters")
{
	struct ibv_counters_init_attr attr = {};
	struct ibv_counters *counters = ibv_create_counters(env.ctx, &attr);

	if (counters) {
		EQ(ibv_destroy_counters(counters), 0);
		SKIP("the device has counters");
	}
	CHECK(says_unsupported(errno));
}

CASE("absent.windows-type-1")
{
	if (env.dev.device_cap_flags & IBV_DEVICE_MEM_WINDOW)
		SKIP("the device reports memory windows of type 1");
	errno = 0;
	CHECK(ibv_alloc_mw(a_pd(), IBV_MW_TYPE_1) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("absent.windows-type-2")
{
	if (env.dev.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B))
		SKIP("the device reports memory windows of type 2");
	errno = 0;
	CHECK(ibv_alloc_mw(a_pd(), IBV_MW_TYPE_2) == NULL);
	CHECK(says_unsupported(errno) || errno == EINVAL);
}

CASE("absent.null-region")
{
	struct ibv_mr *mr = ibv_alloc_null_mr(a_pd());

	if (mr) {
		EQ(ibv_dereg_mr(mr), 0);
		SKIP("the device has a null region");
	}
	CHECK(says_unsupported(errno));
}

CASE("absent.multicast")
{
	union ibv_gid gid = {.raw = {0xff, 0x0e, [15] = 1}};
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));

	if (env.dev.max_mcast_grp)
		SKIP("the device reports multicast groups");
	CHECK(ibv_attach_mcast(qp, &gid, 0) != 0);
	CHECK(ibv_detach_mcast(qp, &gid, 0) != 0);
}
