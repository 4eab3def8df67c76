/* A device's other verbs: either they work or they say so; nothing in between. */
#include "env.h"

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
