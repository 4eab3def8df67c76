/* Queue pairs of ids. */
#include "env.h"

CASE("qp.of-an-id-without-a-device-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	EQ(rdma_create_qp(id, NULL, &init), -1);
	CHECK(errno == EINVAL || errno == ENODEV);
	EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

CASE("qp.of-an-id-with-defaults-of-everything")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	EQ(rdma_create_qp(id, NULL, &init), 0);
	NEED(id->qp && id->pd && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
	CHECK(id->qp->pd == id->pd);
	EQ(state_of(id->qp), IBV_QPS_INIT);
	rdma_destroy_qp(id);
	CHECK(id->qp == NULL);
	EQ(rdma_destroy_id(id), 0);
	EQ(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(channel);
}

CASE("qp.a-second-one-of-an-id-is-refused")
{
	need_cm();
	struct pair p;

	half(&p);
	struct ibv_qp_init_attr init = init_of(&p.a, &(struct wish){});
	FAILS(rdma_create_qp(p.a.id, p.a.pd, &init), EINVAL);
	pair_down(&p);
}

CASE("qp.of-a-domain-of-another-context-is-refused")
{
	need_cm();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(channel, AF_INET, 1), *id = towards(channel, listener);
	struct ibv_context *other = ibv_open_device(env.ctx->device);
	NEED(other && other != id->verbs);
	struct ibv_pd *pd = ibv_alloc_pd(other);
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	FAILS(rdma_create_qp(id, pd, &init), EINVAL);
}

/* uDAPL's way: the queue pair is made on an id of its own, and then written onto the id of the request. */
CASE("qp.moved-to-the-id-of-a-request")
{
	need_cm();
	struct pair p;
	struct wish w = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	half(&p);
	struct rdma_cm_id *own = p.b.id = towards(p.events, p.listener);
	side_objects(&p.b, &w, true);
	struct ibv_qp_init_attr init = init_of(&p.b, &w);
	NEED(rdma_create_qp(own, p.b.pd, &init) == 0);
	NEED(rdma_connect(p.a.id, &param) == 0);
	p.b.id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.b.id->qp = p.b.qp = own->qp;
	own->qp = NULL;
	NEED(rdma_accept(p.b.id, &param) == 0);
	for (int i = 0; i < 2; i++)
		expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	/* The id that had it goes, and the connection stays. */
	EQ(rdma_destroy_id(own), 0);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	NEED(post_recv(&p.a, 3, 0, 64) == 0);
	NEED(send_of(&p.b, 4, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.a.rcq, 3);
	pair_down(&p);
}

CASE("qp.by-hand-and-named-by-number")
{
	need_cm();
	struct pair p = {};
	struct wish w = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	/* Neither end gives its queue pair to its id: rdma_connect(3), qp_num. */
	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 1);
	p.a.id = towards(p.events, p.listener);
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a;
		if (i)
			s->id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		NEED(s->qp = ibv_create_qp(s->pd, &init));
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
		int mask;
		NEED(rdma_init_qp_attr(s->id, &attr, &mask) == 0);
		NEED(ibv_modify_qp(s->qp, &attr, mask) == 0);
		param.qp_num = s->qp->qp_num;
		NEED((i ? rdma_accept(s->id, &param) : rdma_connect(s->id, &param)) == 0);
	}
	/* The active end is told of the answer and completes by itself; devices on which the manager does the rest
	   say "established" at once. */
	struct rdma_cm_event *event;
	for (int i = 0; i < 2; i++) {
		NEED(comes(p.events->fd));
		NEED(rdma_get_cm_event(p.events, &event) == 0);
		CHECKF(event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_CONNECT_RESPONSE,
		       "%s", rdma_event_str(event->event));
		bool response = event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
		NEED(rdma_ack_cm_event(event) == 0);
		if (response) {
			NEED(rdma_establish(p.a.id) == 0);
		}
	}
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	NEED(ibv_destroy_qp(p.a.qp) == 0 && ibv_destroy_qp(p.b.qp) == 0);
	p.a.qp = p.b.qp = NULL;
	pair_down(&p);
}

/* The same, with every step's attributes from the id; the passive end goes through all states by itself. */
CASE("qp.by-hand-through-every-state-of-its-id")
{
	need_cm();
	need_weft();
	struct pair p = {};
	struct wish w = {};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	NEED(p.events = rdma_create_event_channel());
	p.listener = listen_on(p.events, AF_INET, 1);
	p.a.id = towards(p.events, p.listener);
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a;
		if (i)
			s->id = expected(p.events, RDMA_CM_EVENT_CONNECT_REQUEST);
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		NEED(s->qp = ibv_create_qp(s->pd, &init));
		for (int state = IBV_QPS_INIT; state <= (i ? IBV_QPS_RTS : IBV_QPS_INIT); state++) {
			struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)state};
			int mask = 0;
			EQ(rdma_init_qp_attr(s->id, &attr, &mask), 0);
			/* The manager may have brought it there itself: then nothing is left to be set. */
			CHECK(state != IBV_QPS_INIT || mask & IBV_QP_STATE);
			EQ(ibv_modify_qp(s->qp, &attr, mask), 0);
		}
		if (!i) {
			param.qp_num = 0;
			FAILS(rdma_connect(s->id, &param), EINVAL);
		}
		param.qp_num = s->qp->qp_num;
		NEED((i ? rdma_accept(s->id, &param) : rdma_connect(s->id, &param)) == 0);
	}
	for (int i = 0; i < 2; i++)
		expected(p.events, RDMA_CM_EVENT_ESTABLISHED);
	EQ(state_of(p.a.qp), IBV_QPS_RTS);
	EQ(rdma_disconnect(p.a.id), 0);
	for (int i = 0; i < 2; i++)
		expected(p.events, RDMA_CM_EVENT_DISCONNECTED);
	EQ(ibv_destroy_qp(p.a.qp), 0);
	EQ(ibv_destroy_qp(p.b.qp), 0);
	p.a.qp = p.b.qp = NULL;
	pair_down(&p);
}
