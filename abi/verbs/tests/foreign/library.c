/* A stand-in for the installed libibverbs of a machine with an RDMA device: enough of it to see that calls about that
   device come here. */
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#undef ibv_query_port

static struct ibv_device device = {.name = "fake0", .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB};
static int lists;

/* Lists that were given and not freed. */
int fake_lists(void)
{
	return lists;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = &device;
	if (num_devices)
		*num_devices = 1;
	lists++;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	lists--;
	free(list);
}

__be64 ibv_get_device_guid(struct ibv_device *of)
{
	return of == &device ? 0xfa4e : 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *of)
{
	struct verbs_context *context = calloc(1, sizeof(*context));

	context->sz = sizeof(*context);
	context->context.device = of;
	context->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	return &context->context;
}

int ibv_close_device(struct ibv_context *context)
{
	free(verbs_get_ctx(context));
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	strcpy(attr->fw_ver, "fake");
	return context->device == &device ? 0 : EINVAL;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	pd->handle = 4711;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}
