/* The device under test, what it has, and objects that need no connection. */
#include "env.h"

#include <net/if.h>

struct env env = {.address = "127.0.0.1", .address6 = "::1"};

/* --- opening */

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
	env.weft = strncmp(ibv_get_device_name(found), "weft", 4) == 0;
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

void env_open(void)
{
	open_device();
	NEED(ibv_query_device(env.ctx, &env.dev) == 0);
	if (ibv_query_device_ex(env.ctx, NULL, &env.devx) != 0)
		env.devx = (struct ibv_device_attr_ex){.orig_attr = env.dev};
	NEED(ibv_query_port(env.ctx, PORT, &env.port) == 0);
	choose_gid();
}

/* --- capabilities */

bool says_unsupported(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == ENOTTY || error == EPROTONOSUPPORT;
}

_Noreturn void absent_or_wrong(const char *what)
{
	int error = errno;

	if (says_unsupported(error))
		SKIP("the device refuses %s (%s)", what, strerror(error));
	CHECKF(false, "%s: errno %d (%s)", what, error, strerror(error));
	case_end();
}

void need_srq(void)
{
	if (env.dev.max_srq == 0)
		SKIP("the device reports max_srq 0");
}

void need_atomics(void)
{
	if (env.dev.atomic_cap == IBV_ATOMIC_NONE)
		SKIP("the device reports no atomics (atomic_cap)");
}

void need_windows(int type)
{
	unsigned flags = type == 1 ? IBV_DEVICE_MEM_WINDOW
				   : IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

	if (!(env.dev.device_cap_flags & flags))
		SKIP("the device reports no memory windows of type %d (device_cap_flags)", type);
}

void need_infiniband(void)
{
	if (env.iwarp)
		SKIP("the device's transport is iWARP");
}

void need_iwarp(void)
{
	if (!env.iwarp)
		SKIP("the device's transport is not iWARP");
}

void need_cm(void)
{
	if (env.by != BY_CM)
		SKIP("the run is by GID and QPN");
}

void need_weft(void)
{
	if (!env.weft)
		SKIP("the device is not Weft's: another chooses its own errno, or trusts its caller");
}

void need_v6(void)
{
	if (!env.address6)
		SKIP("no IPv6 address of the device is known (-6)");
}

/* No capability tells of immediate data: every InfiniBand device has it, and an iWARP device says so at the post. */
void need_immediate(void)
{
	struct pair p;

	if (!env.iwarp)
		return;
	pair_up(&p, (struct wish){});
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM}, *bad;
	NEED(post_recv(&p.b, 1, 0, 8) == 0);
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (error)
		SKIP("the device's transport is iWARP, and it refuses immediate data (%s)", strerror(error));
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

/* --- objects */

struct ibv_pd *a_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(env.ctx);

	NEED(pd);
	return pd;
}

struct ibv_cq *a_cq(int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(env.ctx, cqe, NULL, NULL, 0);

	NEED(cq);
	return cq;
}

struct ibv_qp *a_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(qp);
	return qp;
}

void *some_memory(size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(at != MAP_FAILED);
	return at;
}

/* An address far from where the kernel maps next: nothing of the process comes to lie there. */
#define APART ((void *)(1UL << 45))

void *memory_apart(size_t length)
{
	void *at = mmap(APART, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(at == APART);
	return at;
}
