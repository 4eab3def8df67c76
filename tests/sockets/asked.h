/* Asking for DDP by Weft's own socket option. */
#ifndef WEFT_SOCKETS_ASKED_H
#define WEFT_SOCKETS_ASKED_H

#include "env.h"

#include "../../abi/include/weft/sockets.h"

static inline bool hooked(void)
{
	const char *preloaded = getenv("LD_PRELOAD");

	return preloaded && strstr(preloaded, "libweft_preload") && (getenv("WEFT_DDP") || getenv("WEFT_UDP"));
}

static inline void need_weft(void)
{
	if (!hooked())
		SKIP("this is about sockets under Weft");
}

static inline int ask(int fd, int mode)
{
	return setsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &mode, sizeof(mode));
}

/* A listener that was asked for a mode. */
static inline int listener_of(long kind, int mode)
{
	int fd = a_bound(kind);

	NEED(ask(fd, mode) == 0 && listen(fd, 8) == 0);
	return fd;
}

#endif
