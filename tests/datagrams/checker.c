/* Whether datagrams arrive as they were sent: each is numbered, sized and hashed.
 *
 *   checker receive PORT [SEED]               says "port N" (0: one that is free), serves one sender, says what it saw
 *   checker send ADDRESS PORT SEED SECONDS    sends bursts of random sizes by every call there is
 *
 * The receiver takes datagrams on four ports of its own choice, which it tells over TCP (PORT). After each burst the
 * sender asks there what arrived and makes no other call meanwhile: whatever waits somewhere has to come by itself.
 * Datagrams of one socket to one destination have to arrive in order, whole, once; on the paths this is meant for (one
 * machine) none may be lost. The exit status is 0 if all is well. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* PATIENCE is in seconds: what is on its way comes, though a machine may stand still for some. */
enum { PORTS = 4, MOST = 65507, BURST = 600, WINDOW = 1 << 20, PATIENCE = 20 };

struct header {
    uint32_t size, source, number, hash;
};

static uint64_t state;

static uint32_t chance(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return below ? (uint32_t)(state >> 33) % below : 0;
}

static uint32_t hash(const uint8_t *octets, size_t len) {
    uint32_t value = 2166136261u;
    for (size_t i = 0; i < len; i++) value = (value ^ octets[i]) * 16777619u;
    return value;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(2);
}

/* What every octet behind the header is, so that a receiver can check without the sender's memory. */
static void fill(uint8_t *octets, uint32_t size, uint32_t source, uint32_t number) {
    struct header *header = (struct header *)octets;
    uint32_t seed = source * 31 + number;
    for (uint32_t i = sizeof *header; i < size; i++) octets[i] = (uint8_t)(seed + i * 7 + (i >> 8));
    *header = (struct header){size, source, number, 0};
    header->hash = hash(octets, size < 2048 ? size : 2048);
}

/* ---- the sending side */

struct out {
    int fd, to, connected;
    uint32_t source, number;
    struct sockaddr_in address;
};

static uint8_t octets[64][MOST + 1];

static uint32_t sizes(uint32_t kind, uint32_t usual) {
    switch (kind) {
    case 0: return usual;
    case 1: return chance(10) ? usual : (uint32_t)sizeof(struct header) + chance(usual);
    case 2: return sizeof(struct header) + chance(3000);
    case 3: return sizeof(struct header) + chance(200);
    default: return chance(20) ? usual : sizeof(struct header) + chance(MOST - sizeof(struct header));
    }
}

/* Sends one datagram or a few; gives how many. */
static int emit(struct out *out, uint32_t call, uint32_t kind, uint32_t usual) {
    int count = call == 4 ? 1 + (int)chance(20) : 1;
    struct mmsghdr messages[64] = {0};
    struct iovec parts[64][3];
    for (int i = 0; i < count; i++) {
        uint32_t size = sizes(kind, usual);
        fill(octets[i], size, out->source, out->number++);
        uint32_t cut = chance(size);
        parts[i][0] = (struct iovec){octets[i], cut};
        parts[i][1] = (struct iovec){NULL, 0};
        parts[i][2] = (struct iovec){octets[i] + cut, size - cut};
        struct msghdr *message = &messages[i].msg_hdr;
        message->msg_iov = parts[i];
        message->msg_iovlen = 3;
        if (!out->connected) {
            message->msg_name = &out->address;
            message->msg_namelen = sizeof out->address;
        }
    }
    struct msghdr *first = &messages[0].msg_hdr;
    uint32_t size = ((struct header *)octets[0])->size;
    for (;;) {
        ssize_t sent;
        switch (out->connected ? call : call == 4 ? 4 : call % 2 + 2) {
        case 0: sent = write(out->fd, octets[0], size); break;
        case 1: sent = send(out->fd, octets[0], size, MSG_NOSIGNAL); break;
        case 2:
            sent = sendto(out->fd, octets[0], size, 0, out->connected ? NULL : (void *)&out->address,
                          out->connected ? 0 : sizeof out->address);
            break;
        case 3: sent = sendmsg(out->fd, first, 0); break;
        case 4: {
            int done = 0;
            while (done < count) {
                int some = sendmmsg(out->fd, messages + done, (unsigned)(count - done), 0);
                if (some <= 0) break;
                for (int i = done; i < done + some; i++)
                    if (messages[i].msg_len != ((struct header *)octets[i])->size) {
                        fprintf(stderr, "sendmmsg said %u octets of %u\n", messages[i].msg_len,
                                ((struct header *)octets[i])->size);
                        exit(1);
                    }
                done += some;
            }
            if (done == count) return count;
            sent = -1;
            if (errno == EAGAIN || errno == EINTR) {
                /* The rest of the list again. */
                memmove(messages, messages + done, sizeof *messages * (size_t)(count - done));
                memmove(octets, octets + done, sizeof *octets * (size_t)(count - done));
                fprintf(stderr, "sendmmsg stopped half-way on a blocking socket\n");
                exit(1);
            }
            break;
        }
        default: sent = writev(out->fd, parts[0], 3);
        }
        if (sent == (ssize_t)size && call != 4) return 1;
        if (sent >= 0) {
            fprintf(stderr, "call %u said %zd of %u octets\n", call, sent, size);
            exit(1);
        }
        if (errno != EAGAIN && errno != EINTR) die("send");
        struct pollfd ready = {out->fd, POLLOUT, 0};
        poll(&ready, 1, 100);
    }
}

static int sender(const char *host, int port, uint64_t seed, double seconds) {
    state = seed;
    int control = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    for (int tries = 0; connect(control, (void *)&to, sizeof to) != 0; tries++) {
        if (tries == 20 * PATIENCE) die("connect");
        usleep(50000);
    }
    uint16_t ports[PORTS];
    if (recv(control, ports, sizeof ports, MSG_WAITALL) != sizeof ports) die("the receiver's ports");
    struct out out[PORTS * 2];
    int shared = socket(AF_INET, SOCK_DGRAM, 0);
    for (int i = 0; i < PORTS * 2; i++) {
        out[i] = (struct out){.connected = i < PORTS, .source = (uint32_t)i, .address = to};
        out[i].address.sin_port = ports[i % PORTS];
        /* Half of the unconnected ones are one socket with several destinations. */
        out[i].fd = i < PORTS || i == PORTS ? socket(AF_INET, SOCK_DGRAM | (i % 2 ? SOCK_NONBLOCK : 0), 0) : shared;
        if (out[i].connected && connect(out[i].fd, (void *)&out[i].address, sizeof to)) die("connect");
    }
    uint64_t total = 0, sent_octets = 0;
    double end = now() + seconds, slowest = 0;
    for (uint64_t burst = 0; now() < end || burst < 3; burst++) {
        uint32_t count = 1 + chance(BURST), kind = chance(5), usual = 1448;
        if (!chance(4)) usual = (uint32_t)sizeof(struct header) + chance(9000);
        uint32_t mixed = chance(3), who = chance(PORTS * 2), call = chance(6);
        uint64_t begun = sent_octets;
        for (uint32_t i = 0; i < count && sent_octets - begun < WINDOW / 4;) {
            if (mixed == 0) who = chance(PORTS * 2);
            if (mixed <= 1) call = chance(6);
            uint32_t before = out[who].number;
            i += (uint32_t)emit(&out[who], call, kind, usual);
            total += out[who].number - before;
            for (uint32_t k = 0; k < out[who].number - before; k++)
                sent_octets += ((struct header *)octets[k])->size + 512;
            if (!chance(200)) usleep(chance(300));
        }
        double asked = now();
        if (write(control, &total, sizeof total) != sizeof total) die("control");
        uint64_t arrived;
        if (recv(control, &arrived, sizeof arrived, MSG_WAITALL) != sizeof arrived) die("the receiver stopped");
        if (now() - asked > slowest) slowest = now() - asked;
        if (arrived != total) {
            fprintf(stderr, "burst %lu of seed %lu: %lu datagrams sent, %lu arrived\n", burst, seed, total, arrived);
            return 1;
        }
    }
    printf("sent %lu datagrams, all arrived; the slowest answer took %.1f ms\n", total, slowest * 1e3);
    return 0;
}

/* ---- the receiving side */

static uint32_t expected[PORTS * 2];
static uint64_t seen;
static int faults;

static void wrong(const char *what, const struct header *header, ssize_t len) {
    fprintf(stderr, "%s: source %u number %u size %u, %zd octets\n", what, header->source, header->number, header->size,
            len);
    if (++faults > 10) exit(1);
}

static void check(int port, const uint8_t *data, ssize_t len) {
    struct header header = *(const struct header *)data;
    if (len < (ssize_t)sizeof header || header.source >= PORTS * 2 || header.source % PORTS != (uint32_t)port) {
        wrong("not ours", &header, len);
        return;
    }
    if (header.size != (uint32_t)len) wrong("boundaries", &header, len);
    static uint8_t copy[MOST + 1];
    fill(copy, header.size, header.source, header.number);
    if (memcmp(copy, data, (size_t)len)) wrong("contents", &header, len);
    if (header.number != expected[header.source]) wrong("order", &header, len);
    expected[header.source] = header.number + 1;
    seen++;
}

/* A look before: the same datagram has to come again. */
static void look(int fd, uint32_t kind) {
    struct header header, again;
    if (kind == 0) {
        if (recv(fd, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof header) return;
        ssize_t size = recv(fd, &again, sizeof again, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
        if (memcmp(&header, &again, sizeof header) || size != (ssize_t)header.size) wrong("peek", &header, size);
    } else if (kind == 1) {
        int next = -1;
        if (recv(fd, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof header) return;
        if (ioctl(fd, FIONREAD, &next) != 0 || next != (int)header.size) wrong("FIONREAD", &header, next);
    }
}

/* Receives what is there by one of the calls; gives how many datagrams. Does not wait. */
static int take(int fd, int port, uint32_t call) {
    static uint8_t data[16][MOST + 1];
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    ssize_t got;
    look(fd, chance(20));
    switch (call) {
    case 0: got = recv(fd, data[0], sizeof *data, MSG_DONTWAIT); break;
    case 1:
        got = recvfrom(fd, data[0], sizeof *data, MSG_DONTWAIT, (void *)&from, &len);
        if (got >= 0 && (len != sizeof from || from.sin_family != AF_INET || !from.sin_port))
            wrong("source address", (void *)data[0], got);
        break;
    case 2: {
        struct iovec parts[2] = {{data[0], 1000}, {data[0] + 1000, sizeof *data - 1000}};
        char control[64];
        struct msghdr message = {&from, sizeof from, parts, 2, control, sizeof control, 0};
        got = recvmsg(fd, &message, MSG_DONTWAIT);
        if (got >= 0 && (message.msg_namelen != sizeof from || message.msg_flags || message.msg_controllen))
            wrong("recvmsg's fields", (void *)data[0], got);
        break;
    }
    case 3: {
        struct mmsghdr messages[16] = {0};
        struct iovec parts[16];
        for (int i = 0; i < 16; i++) {
            parts[i] = (struct iovec){data[i], sizeof *data};
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        int count = recvmmsg(fd, messages, 16, MSG_DONTWAIT, NULL);
        for (int i = 0; i < count; i++) check(port, data[i], messages[i].msg_len);
        return count > 0 ? count : 0;
    }
    default: { /* Too little room: only the length and the header can be checked, the rest is gone. */
        struct header header;
        struct iovec part = {&header, sizeof header};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0) return 0;
        int cut = got > (ssize_t)sizeof header;
        if (got != (ssize_t)header.size || !!(message.msg_flags & MSG_TRUNC) != cut) wrong("truncation", &header, got);
        if (header.source < PORTS * 2 && header.number != expected[header.source]) wrong("order", &header, got);
        expected[header.source % (PORTS * 2)] = header.number + 1;
        seen++;
        return 1;
    }
    }
    if (got < 0) return 0;
    check(port, data[0], got);
    return 1;
}

/* Binds, and gives the port in network order. */
static uint16_t bound(int fd, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t len = sizeof at;
    if (bind(fd, (void *)&at, sizeof at) || getsockname(fd, (void *)&at, &len)) die("bind");
    return at.sin_port;
}

static int receiver(int port, uint64_t seed) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, big = 8 << 20;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    port = ntohs(bound(listener, port));
    if (listen(listener, 1)) die("listen");
    uint16_t ports[PORTS];
    int fds[PORTS], level = epoll_create1(0), edge = epoll_create1(0);
    for (int i = 0; i < PORTS; i++) {
        fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
        if (setsockopt(fds[i], SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big))
            setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &big, sizeof big);
        ports[i] = bound(fds[i], 0);
        epoll_ctl(level, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){EPOLLIN, {.u32 = (uint32_t)i}});
        epoll_ctl(edge, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){EPOLLIN | EPOLLET, {.u32 = (uint32_t)i}});
    }
    printf("port %d\n", port);
    fflush(stdout);
    int control = accept(listener, NULL, NULL);
    if (control < 0) die("accept");
    if (write(control, ports, sizeof ports) != sizeof ports) die("control");
    fcntl(control, F_SETFL, O_NONBLOCK);
    state = seed;
    uint64_t wanted = 0, answered = 0;
    double last = now();
    uint32_t way = 0, call = 0;
    for (;;) {
        uint64_t before = seen, number;
        ssize_t got = recv(control, &number, sizeof number, 0);
        if (got == 0) break;
        if (got == sizeof number) {
            wanted = number;
            last = now();
        }
        if (wanted != answered && (seen == wanted || now() - last > PATIENCE)) {
            answered = wanted;
            if (write(control, &seen, sizeof seen) != sizeof seen) break;
        }
        if (!chance(50)) way = chance(4);
        if (!chance(20)) call = chance(5);
        if (way == 0) {
            struct pollfd ready[PORTS];
            for (int i = 0; i < PORTS; i++) ready[i] = (struct pollfd){fds[i], POLLIN, 0};
            poll(ready, PORTS, 1);
            for (int i = 0; i < PORTS; i++)
                if (ready[i].revents & POLLIN && !take(fds[i], i, call)) {
                    fprintf(stderr, "poll said readable, and there is nothing\n");
                    faults++;
                }
        } else if (way == 1) {
            struct epoll_event events[PORTS];
            int count = epoll_wait(level, events, PORTS, 1);
            for (int i = 0; i < count; i++) take(fds[events[i].data.u32], (int)events[i].data.u32, call);
        } else if (way == 2) {
            /* Edge-triggered: who was told reads to the end. Datagrams from before the change of way come first. */
            for (int i = 0; i < PORTS; i++)
                while (take(fds[i], i, call)) {}
            struct epoll_event events[PORTS];
            int count = epoll_wait(edge, events, PORTS, 1);
            for (int i = 0; i < count; i++)
                while (take(fds[events[i].data.u32], (int)events[i].data.u32, call)) {}
        } else {
            fd_set set;
            FD_ZERO(&set);
            for (int i = 0; i < PORTS; i++) FD_SET(fds[i], &set);
            struct timeval time = {0, 1000};
            select(fds[PORTS - 1] + 1, &set, NULL, NULL, &time);
            for (int i = 0; i < PORTS; i++)
                if (FD_ISSET(fds[i], &set)) take(fds[i], i, call);
        }
        if (seen != before) last = now();
    }
    printf("received %lu datagrams, %d faults\n", seen, faults);
    return faults != 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if ((argc == 3 || argc == 4) && !strcmp(argv[1], "receive"))
        return receiver(atoi(argv[2]), argc == 4 ? strtoull(argv[3], NULL, 0) : 1);
    if (argc == 6 && !strcmp(argv[1], "send"))
        return sender(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 0), atof(argv[5]));
    fprintf(stderr, "usage: checker receive PORT [SEED] | checker send ADDRESS PORT SEED SECONDS\n");
    return 2;
}
