/* The machine's own device beside ours. */
#include "../c/edge.h"

extern int fake_lists(void);

static bool real_ones_are_wanted(void)
{
	return getenv("WEFT_REAL_DEVICES") != NULL;
}

static bool weft_is_off(void)
{
	return getenv("WEFT_OFF") != NULL;
}

CASE("foreign.a-real-device-is-alone-and-its-librarys-when-weft-is-off")
{
	struct ibv_device_attr attr;
	int count = 0;

	if (!weft_is_off())
		SKIP("Weft is on");
	struct ibv_device **list = ibv_get_device_list(&count);
	EQ(count, 1);
	NEED(list && list[0] && !list[1]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "fake0"));
	struct ibv_context *context = ibv_open_device(list[0]);
	NEED(context);
	EQ(ibv_query_device(context, &attr), 0);
	CHECK(!strcmp(attr.fw_ver, "fake"));
	struct ibv_pd *pd = ibv_alloc_pd(context);
	NEED(pd);
	EQ(pd->handle, 4711);
	EQ(ibv_dealloc_pd(pd), 0);
	EQ(ibv_close_device(context), 0);
	ibv_free_device_list(list);
	EQ(fake_lists(), 0);
}

CASE("foreign.a-real-device-stays-hidden")
{
	int count = 0;

	if (real_ones_are_wanted() || weft_is_off())
		SKIP("the run asks for real devices");
	struct ibv_device **list = ibv_get_device_list(&count);
	NEED(list);
	EQ(count, 1);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "weft0"));
	EQ(fake_lists(), 0);
	ibv_free_device_list(list);
}

/* The list with both; `name` of each entry is known. */
static struct ibv_device **both(void)
{
	int count = 0;

	if (!real_ones_are_wanted() || weft_is_off())
		SKIP("the run asks for no real devices");
	struct ibv_device **list = ibv_get_device_list(&count);
	NEED(list);
	EQ(count, 2);
	NEED(list[0] && list[1] && !list[2]);
	return list;
}

CASE("foreign.a-real-device-is-listed-behind-ours")
{
	struct ibv_device **list = both();

	CHECK(!strcmp(ibv_get_device_name(list[0]), "weft0"));
	CHECK(!strcmp(ibv_get_device_name(list[1]), "fake0"));
	EQ(fake_lists(), 1);
	ibv_free_device_list(list);
	EQ(fake_lists(), 0);
}

CASE("foreign.calls-about-it-go-to-its-library-and-ours-is-served-as-before")
{
	struct ibv_device **list = both();
	struct ibv_device_attr attr;

	EQ(ibv_get_device_guid(list[1]), 0xfa4e);
	struct ibv_context *theirs = ibv_open_device(list[1]), *ours = ibv_open_device(list[0]);
	NEED(theirs && ours);
	EQ(ibv_query_device(theirs, &attr), 0);
	CHECK(!strcmp(attr.fw_ver, "fake"));
	struct ibv_pd *pd = ibv_alloc_pd(theirs);
	NEED(pd);
	EQ(pd->handle, 4711);
	EQ(ibv_dealloc_pd(pd), 0);

	EQ(ibv_query_device(ours, &attr), 0);
	CHECK(strcmp(attr.fw_ver, "fake"));
	NEED(pd = ibv_alloc_pd(ours));
	CHECK(pd->handle != 4711);
	EQ(ibv_dealloc_pd(pd), 0);
	CHECK(ibv_alloc_pd(NULL) == NULL);
	EQ(ibv_close_device(ours), 0);
	EQ(ibv_close_device(theirs), 0);
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	static const struct program program = {.name = "foreign"};

	return cases_main(argc, argv, &program);
}
