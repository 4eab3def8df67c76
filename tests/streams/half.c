/* The calls by which octets leave and arrive, each octet checked by its place in the stream. */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECES = 8 };

static __thread unsigned char octets[CALL_MAX];

uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

size_t below(uint64_t *state, size_t most)
{
	size_t limit = (size_t)2 << next_random(state) % 20;

	return next_random(state) % (limit < most ? limit : most);
}

bool one_in(uint64_t *state, unsigned most)
{
	return next_random(state) % most == 0;
}

static unsigned char octet_at(unsigned flow, uint64_t at)
{
	uint64_t state = (at >> 3) + ((uint64_t)flow << 40);

	return (unsigned char)(next_random(&state) >> (at & 7) * 8);
}

static void make(const struct half *h, size_t length)
{
	for (size_t i = 0; i < length; i++)
		octets[i] = octet_at(h->flow, h->at + i);
}

static void check(const struct half *h, size_t from, const unsigned char *came, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (came[i] != octet_at(h->flow, h->at + from + i))
			wrong(h, "octet %zu of %zu that came is %#x, not %#x", from + i, from + length, came[i],
			      octet_at(h->flow, h->at + from + i));
}

/* Divides the buffer into pieces, some of them empty. */
static int divide(struct iovec *pieces, size_t length, uint64_t *random)
{
	int count = 1 + (int)(next_random(random) % PIECES);
	size_t done = 0;

	for (int i = 0; i < count; i++) {
		size_t some = i + 1 == count ? length - done : below(random, length - done + 1);
		pieces[i] = (struct iovec){octets + done, some};
		done += some;
	}
	return count;
}

/* Whether the receiver's place in the stream is not known. It is as soon as it moves on. */
static bool looks_for_place(const struct half *h)
{
	return h->is_lost && h->at == h->lost_at;
}

/* So many octets went through, and no call is under way any more: in this order, as the process may be killed between
   the two. */
static void advance(struct half *h, uint64_t length)
{
	__atomic_store_n(&h->at, h->at + length, __ATOMIC_SEQ_CST);
	__atomic_store_n(&h->pending, 0, __ATOMIC_SEQ_CST);
}

/* --- sending */

static ssize_t by_sendfile(struct half *h, size_t length)
{
	int file = memfd_create("octets", MFD_CLOEXEC), saved;
	off_t from = (off_t)(length % 7);
	ssize_t sent;

	if (file < 0 || pwrite(file, octets, length, from) != (ssize_t)length)
		wrong(h, "a file: %s", strerror(errno));
	sent = sendfile(h->fd, file, &from, length);
	saved = errno;
	if (sent > 0 && from != (off_t)(length % 7) + sent)
		wrong(h, "sendfile moved the offset to %ld", (long)from);
	close(file);
	errno = saved;
	return sent;
}

static ssize_t by_splice(struct half *h, size_t length, unsigned flags)
{
	int ends[2], saved;
	ssize_t there, sent;

	if (pipe2(ends, O_NONBLOCK))
		wrong(h, "a pipe: %s", strerror(errno));
	there = write(ends[1], octets, length);
	if (there <= 0)
		wrong(h, "a pipe takes nothing");
	h->pending = (uint64_t)there;
	sent = splice(ends[0], NULL, h->fd, NULL, (size_t)there, flags);
	saved = errno;
	close(ends[0]);
	close(ends[1]);
	errno = saved;
	return sent;
}

static ssize_t by_sendmmsg(struct half *h, size_t length, int flags, uint64_t *random)
{
	size_t first = 1 + below(random, length);
	struct iovec parts[2] = {{octets, first}, {octets + first, length - first}};
	struct mmsghdr messages[2] = {{{.msg_iov = parts, .msg_iovlen = 1}, 0},
				      {{.msg_iov = parts + 1, .msg_iovlen = 1}, 0}};
	int count = sendmmsg(h->fd, messages, 2, flags);

	if (count < 1)
		return -1;
	if (count == 2 && messages[0].msg_len != first)
		wrong(h, "sendmmsg goes on behind a message that left in part");
	return (ssize_t)(messages[0].msg_len + (count == 2 ? messages[1].msg_len : 0));
}

static ssize_t send_some(struct half *h, size_t length, uint64_t *random)
{
	struct iovec pieces[PIECES];
	int flags = MSG_NOSIGNAL | (h->never_waits || one_in(random, 4) ? MSG_DONTWAIT : 0);
	int count = divide(pieces, length, random);
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};

	make(h, length);
	h->pending = length;
	if (one_in(random, 8))
		flags |= MSG_MORE;
	/* Calls without flags wait where the socket does. */
	switch (next_random(random) % (h->never_waits && h->blocks ? 4 : 8)) {
	case 0: return h->call = "send", send(h->fd, octets, length, flags);
	case 1: return h->call = "sendto", sendto(h->fd, octets, length, flags, NULL, 0);
	case 2: return h->call = "sendmsg", sendmsg(h->fd, &message, flags);
	case 3: return h->call = "sendmmsg", by_sendmmsg(h, length, flags, random);
	case 4: return h->call = "writev", writev(h->fd, pieces, count);
	case 5: return h->call = "sendfile", by_sendfile(h, length);
	case 6: return h->call = "splice out", by_splice(h, length, 0);
	default: return h->call = "write", write(h->fd, octets, length);
	}
}

static void cut(struct half *h)
{
	h->connection->is_cut = true;
	h->is_over = true;
}

/* A call failed: whether that is what has to be. */
static enum step failed(struct half *h, int error)
{
	h->pending = 0;
	if (error == EAGAIN)
		return WAITS;
	if (error == EINTR)
		return MOVED;
	bool may = h->connection->may_be_reset || h->connection->was_killed_in;
	if (may && (error == ECONNRESET || error == EPIPE)) {
		cut(h);
		return OVER;
	}
	errno = error;
	wrong(h, "%s: %s", h->call, strerror(error));
}

static enum step sender_step(struct half *h, uint64_t *random)
{
	if (h->at == h->total || h->unsure) {
		h->call = "shutdown";
		if (h->ends && shutdown(h->fd, SHUT_WR) && errno != ENOTCONN)
			return failed(h, errno);
		h->is_over = true;
		return OVER;
	}
	size_t length = 1 + below(random, CALL_MAX);
	if (length > h->total - h->at)
		length = h->total - h->at;
	ssize_t sent = send_some(h, length, random);
	if (sent < 0)
		return failed(h, errno);
	if (sent == 0 || (uint64_t)sent > h->pending)
		wrong(h, "%s of %zu octets gives %zd", h->call, length, sent);
	advance(h, (uint64_t)sent);
	return MOVED;
}

/* --- receiving */

/* How many octets came, by a call after which they lie in `octets`. */
static ssize_t into_pipe(struct half *h, size_t length)
{
	int ends[2], saved;
	ssize_t came, read_back = 0;

	if (pipe2(ends, O_NONBLOCK))
		wrong(h, "a pipe: %s", strerror(errno));
	came = splice(h->fd, NULL, ends[1], NULL, length, h->never_waits ? SPLICE_F_NONBLOCK : 0);
	saved = errno;
	while (read_back < came) {
		ssize_t some = read(ends[0], octets + read_back, (size_t)(came - read_back));
		if (some <= 0)
			wrong(h, "splice tells of %zd octets, and %zd are in the pipe", came, read_back);
		read_back += some;
	}
	close(ends[0]);
	close(ends[1]);
	errno = saved;
	return came;
}

static ssize_t by_recvmmsg(struct half *h, size_t length, int flags, uint64_t *random)
{
	/* Of nothing it would be the end. */
	size_t first = 1 + below(random, length);
	struct iovec parts[2] = {{octets, first}, {octets + first, length - first}};
	struct mmsghdr messages[2] = {{{.msg_iov = parts, .msg_iovlen = 1}, 0},
				      {{.msg_iov = parts + 1, .msg_iovlen = 1}, 0}};
	int count = recvmmsg(h->fd, messages, first < length ? 2 : 1, flags | MSG_WAITFORONE, NULL);

	if (count < 1)
		return -1;
	check(h, 0, octets, messages[0].msg_len);
	if (count == 1)
		return messages[0].msg_len;
	size_t more = messages[1].msg_len;
	check(h, messages[0].msg_len, octets + first, more);
	memmove(octets + messages[0].msg_len, octets + first, more);
	return (ssize_t)(messages[0].msg_len + more);
}

/* Whether the count of octets that can be received is true. */
static void check_count(struct half *h)
{
	int count = -1;

	if (ioctl(h->fd, FIONREAD, &count))
		wrong(h, "FIONREAD: %s", strerror(errno));
	if (count < 0 || (!looks_for_place(h) && (uint64_t)count > h->total - h->at))
		wrong(h, "FIONREAD gives %d", count);
	if (count > 0 && recv(h->fd, octets, 1, MSG_DONTWAIT | MSG_PEEK) != 1)
		wrong(h, "FIONREAD gave %d, and nothing is there: %s", count, strerror(errno));
}

enum { PEEKED = -2, DISCARDED = -3 };

static ssize_t receive_some(struct half *h, size_t length, uint64_t *random, bool *all)
{
	struct iovec pieces[PIECES];
	int count = divide(pieces, length, random);
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
	int flags = h->never_waits || one_in(random, 4) ? MSG_DONTWAIT : 0;
	ssize_t came;

	h->pending = length;
	switch (next_random(random) % (h->never_waits && h->blocks ? 8 : 12)) {
	case 0:
	case 1: return h->call = "recv", recv(h->fd, octets, length, flags);
	case 2: return h->call = "recvmsg", recvmsg(h->fd, &message, flags);
	case 3: return h->call = "recvmmsg", by_recvmmsg(h, length, flags, random);
	case 4:
		h->call = "recv, all of it";
		*all = !flags && h->blocks;
		return recv(h->fd, octets, length, flags | MSG_WAITALL);
	case 5:
		h->call = "a look";
		came = recv(h->fd, octets, length, flags | MSG_PEEK);
		if (came > 0)
			check(h, 0, octets, (size_t)came);
		h->pending = 0;
		return came > 0 ? PEEKED : came;
	case 6:
		h->call = "recv, thrown away";
		return recv(h->fd, octets, length, flags | MSG_TRUNC);
	case 7:
		h->call = "FIONREAD";
		h->pending = 0;
		check_count(h);
		return PEEKED;
	case 8: return h->call = "readv", readv(h->fd, pieces, count);
	case 9:
		h->call = "splice in";
		return into_pipe(h, length < 65536 ? length : 65536);
	default: return h->call = "read", read(h->fd, octets, length);
	}
}

/* The stream is at its end: whether it may be. */
static enum step end_came(struct half *h)
{
	uint64_t sent = h->peer->at, more = h->peer->unsure;

	h->is_over = true;
	h->pending = 0;
	if (h->connection->is_cut || h->connection->may_be_reset)
		return OVER;
	if (h->at < sent || h->at > sent + more)
		wrong(h, "it ends, and %llu octets were sent (%llu more may have been)", (unsigned long long)sent,
		      (unsigned long long)more);
	return OVER;
}

/* Looks for the place where the stream goes on behind what a killed process may have taken. */
static enum step find_place(struct half *h)
{
	ssize_t came;

	h->call = "recv, to find its place";
	h->pending = PLACE - h->place_length;
	/* A process that was killed while it compared has left all of them. */
	came = h->place_length;
	if (h->place_length < PLACE) {
		came = recv(h->fd, h->place + h->place_length, PLACE - h->place_length, h->never_waits ? MSG_DONTWAIT : 0);
		if (came < 0)
			return failed(h, errno);
		__atomic_store_n(&h->place_length, h->place_length + (size_t)came, __ATOMIC_SEQ_CST);
		h->pending = 0;
		if (came > 0 && h->place_length < PLACE)
			return MOVED;
	}
	for (uint64_t gone = 0; gone <= h->unsure; gone++) {
		size_t like = 0;
		while (like < h->place_length && h->place[like] == octet_at(h->flow, h->at + gone + like))
			like++;
		/* Behind the end of a stream there is one place that fits. */
		bool fits_end = came > 0 || (h->at + gone + like >= h->peer->at &&
					     h->at + gone + like <= h->peer->at + h->peer->unsure);
		if (like < h->place_length || (!fits_end && !h->connection->is_cut))
			continue;
		advance(h, gone + h->place_length);
		return came > 0 ? MOVED : end_came(h);
	}
	if (came == 0 && (h->connection->is_cut || h->connection->may_be_reset))
		return end_came(h);
	wrong(h, "behind a call in which a process was killed the stream goes on nowhere (%zu octets, up to %llu gone)",
	      h->place_length, (unsigned long long)h->unsure);
}

static enum step receiver_step(struct half *h, uint64_t *random)
{
	bool all = false;

	if (looks_for_place(h))
		return find_place(h);
	if (!h->ends && h->at == h->total) {
		h->is_over = true;
		return OVER;
	}
	size_t length = 1 + below(random, CALL_MAX);
	/* Who does not hear of the end must not ask beyond. */
	if (!h->ends && length > h->total - h->at)
		length = h->total - h->at;
	ssize_t came = receive_some(h, length, random, &all);
	if (came == PEEKED)
		return MOVED;
	if (came < 0)
		return failed(h, errno);
	if (came == 0)
		return end_came(h);
	if ((size_t)came > length)
		wrong(h, "%s of %zu octets gives %zd", h->call, length, came);
	if (strcmp(h->call, "recv, thrown away"))
		check(h, 0, octets, (size_t)came);
	advance(h, (uint64_t)came);
	/* Fewer than all are the last, but for a signal. */
	if (all && (size_t)came < length && h->at < h->peer->at && !h->connection->may_be_reset &&
	    !h->connection->was_killed_in)
		wrong(h, "%zd of all %zu octets, and %llu were sent", came, length, (unsigned long long)h->peer->at);
	return MOVED;
}

enum step half_step(struct half *h, uint64_t *random)
{
	if (h->is_over)
		return OVER;
	return h->sends ? sender_step(h, random) : receiver_step(h, random);
}

void half_was_killed(struct half *h)
{
	if (h->is_over || !h->pending)
		return;
	if (h->sends) {
		/* Nobody knows what left: it is the end of the stream, wherever that is. */
		h->unsure = h->pending;
		h->ends = h->peer->ends = true;
	} else {
		h->unsure = h->pending + (looks_for_place(h) ? h->unsure + h->place_length : 0);
		h->is_lost = true;
		h->lost_at = h->at;
		h->place_length = 0;
	}
	h->pending = 0;
}
