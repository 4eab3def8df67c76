/* The machine's own device beside ours. */
#include "../c/pair.h"

extern int fake_lists(void);

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_device_attr attr;

	if (getenv("WEFT_OFF")) {
		begin_case("a real device is alone when Weft is off");
		EQUAL(count, 1);
		NEED(list && list[0] && !list[1]);
		CHECK(!strcmp(ibv_get_device_name(list[0]), "fake0"));

		begin_case("calls about it go to its library");
		struct ibv_context *context = ibv_open_device(list[0]);
		NEED(context);
		EQUAL(ibv_query_device(context, &attr), 0);
		CHECK(!strcmp(attr.fw_ver, "fake"));
		struct ibv_pd *pd = ibv_alloc_pd(context);
		NEED(pd);
		EQUAL(pd->handle, 4711);
		EQUAL(ibv_dealloc_pd(pd), 0);
		EQUAL(ibv_close_device(context), 0);
		ibv_free_device_list(list);
		EQUAL(fake_lists(), 0);
		end_program();
	}
	if (!getenv("WEFT_REAL_DEVICES")) {
		begin_case("a real device stays hidden");
		EQUAL(count, 1);
		CHECK(!strcmp(ibv_get_device_name(list[0]), "weft0"));
		EQUAL(fake_lists(), 0);
		ibv_free_device_list(list);
		end_program();
	}
	begin_case("a real device is listed behind ours");
	EQUAL(count, 2);
	NEED(list && list[0] && list[1] && !list[2]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "weft0"));
	CHECK(!strcmp(ibv_get_device_name(list[1]), "fake0"));
	EQUAL(fake_lists(), 1);

	begin_case("calls about it go to its library");
	EQUAL(ibv_get_device_guid(list[1]), 0xfa4e);
	struct ibv_context *theirs = ibv_open_device(list[1]), *ours = ibv_open_device(list[0]);
	NEED(theirs && ours);
	EQUAL(ibv_query_device(theirs, &attr), 0);
	CHECK(!strcmp(attr.fw_ver, "fake"));
	struct ibv_pd *pd = ibv_alloc_pd(theirs);
	NEED(pd);
	EQUAL(pd->handle, 4711);
	EQUAL(ibv_dealloc_pd(pd), 0);

	begin_case("ours is served as before");
	EQUAL(ibv_query_device(ours, &attr), 0);
	CHECK(strcmp(attr.fw_ver, "fake"));
	NEED(pd = ibv_alloc_pd(ours));
	CHECK(pd->handle != 4711);
	EQUAL(ibv_dealloc_pd(pd), 0);
	CHECK(ibv_alloc_pd(NULL) == NULL);
	EQUAL(ibv_close_device(ours), 0);
	EQUAL(ibv_close_device(theirs), 0);

	begin_case("both lists are freed");
	ibv_free_device_list(list);
	EQUAL(fake_lists(), 0);
	end_program();
}
