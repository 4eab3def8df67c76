/* Posting and reaping. */
#include "env.h"

void take_event(struct side *s, struct ibv_cq *cq)
{
	struct ibv_cq *got = NULL;
	void *context = NULL;

	EQ(ibv_get_cq_event(s->channel, &got, &context), 0);
	CHECK(got == cq && context == s);
	ibv_ack_cq_events(cq, 1);
}

void one_event(struct side *s, struct ibv_cq *cq)
{
	if (!CHECKF(readable(s->channel->fd, 5000), "no completion event within 5 s"))
		case_end();
	take_event(s, cq);
}
