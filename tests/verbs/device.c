/* The device: list, attributes, asynchronous events. */
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

CASE("device.names-its-maker")
{
	CHECK(env.dev.vendor_id != 0);
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

CASE("async.events-of-a-destroyed-queue-are-gone")
{
	need_srq();
	need_weft();
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(a_pd(), &init);
	struct ibv_srq_attr limit = {.srq_limit = 2};

	NEED(srq);
	/* Fewer receives than the limit are posted already, so the event is due at once. */
	EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	NEED(comes(env.ctx->async_fd));
	EQ(ibv_destroy_srq(srq), 0);
	CHECK(!readable(env.ctx->async_fd, QUIET));
}
