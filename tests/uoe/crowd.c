/* A program that knows nothing of Weft: processes that send datagrams of random sizes to others that receive them in
 * all ways there are, each datagram checked.
 *
 *   crowd SEED MILLISECONDS [forks] [kills]
 *
 * Each datagram has its sender's number, its place among those to one socket, and octets that follow from these. What
 * arrives is noted in memory that all processes share, so that one that comes twice is seen wherever it comes. With
 * `forks` senders fork in their midst and both go on, by the same socket; with `kills` processes are killed, and
 * receivers begin again at their port. Says "WRONG ..." of what must not be, and at the end one line of counts.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TARGETS = 6, SENDERS = 160, SEQUENCES = 1 << 15, LONGEST = 65507, MAGIC = 0x5eed0a7d };
enum { MEMINFO = 55, MEMINFO_DROPS = 8, MEMINFO_WORDS = 9 }; /* SO_MEMINFO, SK_MEMINFO_DROPS */

struct head {
    uint32_t magic, sequence, len;
    uint16_t sender, target, port, spare;
};

/* Datagrams of one sender to one socket. */
struct flow {
    atomic_uint sent, came;
    atomic_uchar seen[SEQUENCES / 8];
};

static struct {
    /* `receivers`: how many have a socket at their port. */
    atomic_int wrong, stopped, senders, receivers;
    /* Datagrams that the kernel dropped, Weft's own among them; those that came behind a later one; processes. */
    atomic_ulong dropped, disordered, forked, killed;
    uint16_t port[TARGETS];
    struct flow flows[SENDERS][TARGETS];
} *shared;

static bool with_forks, with_kills;
static double ends_at;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void rest(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* Numbers of xorshift: each thread has its own. */
static uint32_t next(uint64_t *state, uint32_t below) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 20) % below;
}

__attribute__((format(printf, 1, 2))) static void wrong(const char *what, ...) {
    va_list words;
    va_start(words, what);
    char line[300];
    vsnprintf(line, sizeof line, what, words);
    va_end(words);
    fprintf(stderr, "WRONG %s\n", line);
    atomic_fetch_add(&shared->wrong, 1);
}

static void fail(const char *what) {
    wrong("%s: %s", what, strerror(errno));
    exit(1);
}

static uint8_t octet_of(const struct head *head, uint32_t at) {
    return (uint8_t)(head->sequence * 31 + head->sender * 17 + head->target * 5 + at * 7);
}

static struct sockaddr_in address(uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int bound(uint16_t port) {
    struct sockaddr_in at = address(port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0) fail("socket");
    /* A killed process may hold the port a moment longer. */
    for (double until = now() + 5; bind(fd, (void *)&at, sizeof at);) {
        if (now() > until) fail("bind");
        rest(0.001);
    }
    return fd;
}

/* A port that nobody has, and that no socket is given which asks for any: of another thousand for each receiver. */
static uint16_t free_port(int target, uint64_t *state) {
    for (;;) {
        uint16_t port = (uint16_t)(10000 + 1000 * target + (int)next(state, 1000));
        struct sockaddr_in at = address(htons(port));
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        bool is_free = bind(fd, (void *)&at, sizeof at) == 0;
        close(fd);
        if (is_free) return at.sin_port;
    }
}

static uint16_t port_of(int fd) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    if (getsockname(fd, (void *)&at, &len)) fail("getsockname");
    return at.sin_port;
}

/* --- receivers */

static void check(const uint8_t *datagram, size_t len, const struct sockaddr_in *from, int target, uint32_t *last) {
    struct head head;
    if (len < sizeof head) return wrong("a datagram of %zu octets at %d", len, target);
    memcpy(&head, datagram, sizeof head);
    if (head.magic != MAGIC || head.len != len || head.sender >= SENDERS || head.sequence >= SEQUENCES)
        return wrong("a head that nobody sent, of %zu octets at %d", len, target);
    if (head.target != target) return wrong("one for %d came to %d", head.target, target);
    if (from->sin_port != head.port)
        return wrong("one from port %d came from %d", ntohs(head.port), ntohs(from->sin_port));
    if (from->sin_addr.s_addr != htonl(INADDR_LOOPBACK)) return wrong("an address that nobody has");
    for (uint32_t at = sizeof head; at < len; at++)
        if (datagram[at] != octet_of(&head, at)) return wrong("octet %u of %zu of a datagram", at, len);
    struct flow *flow = &shared->flows[head.sender][target];
    uint8_t bit = (uint8_t)(1 << head.sequence % 8);
    if (atomic_fetch_or(&flow->seen[head.sequence / 8], bit) & bit)
        return wrong("number %u of sender %d came twice to %d", head.sequence, head.sender, target);
    atomic_fetch_add(&flow->came, 1);
    if (head.sequence + 1 < last[head.sender]) atomic_fetch_add(&shared->disordered, 1);
    if (head.sequence >= last[head.sender]) last[head.sender] = head.sequence + 1;
}

/* One datagram, or several; whether there were some. */
static bool take(int fd, int target, bool at_once, bool many, uint32_t *last) {
    static uint8_t room[4][LONGEST + 1];
    struct sockaddr_in from[4];
    struct iovec parts[4];
    struct mmsghdr messages[4];
    int flags = at_once ? MSG_DONTWAIT : many ? MSG_WAITFORONE : 0, count;
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){room[i], sizeof room[i]};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &parts[i], .msg_iovlen = 1};
    }
    if (many) {
        count = recvmmsg(fd, messages, 4, flags, NULL);
    } else {
        ssize_t len = recvmsg(fd, &messages[0].msg_hdr, flags);
        messages[0].msg_len = (unsigned)(len < 0 ? 0 : len);
        count = len < 0 ? -1 : 1;
    }
    if (count < 0 && errno != EAGAIN && errno != EINTR) fail("a receive");
    for (int i = 0; i < count; i++) check(room[i], messages[i].msg_len, &from[i], target, last);
    return count > 0;
}

/* Waits a twentieth of a second at most. */
static void await(int fd, int epoll, uint32_t how) {
    struct pollfd one = {fd, POLLIN, 0};
    struct timeval time = {0, 50000};
    struct epoll_event event;
    fd_set set;
    if (how == 0) poll(&one, 1, 50);
    if (how == 1) epoll_wait(epoll, &event, 1, 50);
    if (how == 2) {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        select(fd + 1, &set, NULL, NULL, &time);
    }
}

static void receive(int target, uint64_t state) {
    static uint32_t last[SENDERS];
    int fd = bound(shared->port[target]), epoll = epoll_create1(0), sizes[] = {0, 64 << 10, 4 << 20};
    /* In poll, epoll, select, the receive itself, or epoll by edge, after which all is taken. */
    uint32_t how = next(&state, 5);
    int size = sizes[next(&state, 3)];
    bool many = next(&state, 2), is_edge = how == 4;
    atomic_fetch_add(&shared->receivers, 1);
    struct timeval time = {0, 50000};
    struct epoll_event event = {.events = EPOLLIN | (is_edge ? EPOLLET : 0)};
    if (size) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    /* On a busy machine what was sent may take a while, and what a receiver leaves behind nobody counts. Looks are
     * counted, not time, in which the receiver may not have been let run. */
    for (int looks = 0; !atomic_load(&shared->stopped) || looks < 20; looks++) {
        await(fd, epoll, is_edge ? 1 : how);
        bool took = take(fd, target, how != 3, many, last);
        while (took && is_edge && take(fd, target, true, many, last)) {}
        if (took) looks = 0;
        if (next(&state, 4000) == 0) rest(0.02);
    }
    uint32_t memory[MEMINFO_WORDS] = {0};
    socklen_t len = sizeof memory;
    if (getsockopt(fd, SOL_SOCKET, MEMINFO, memory, &len)) fail("SO_MEMINFO");
    atomic_fetch_add(&shared->dropped, memory[MEMINFO_DROPS]);
    exit(0);
}

/* --- senders */

static uint32_t length(uint64_t *state) {
    uint32_t lengths[] = {100, 1448, 9000, LONGEST}, sort = next(state, 20);
    uint32_t most = lengths[sort < 10 ? 0 : sort < 18 ? 1 : sort < 19 ? 2 : 3];
    return (uint32_t)sizeof(struct head) + next(state, most - (uint32_t)sizeof(struct head) + 1);
}

struct sender {
    int fd, number, target;
    uint64_t state;
    uint8_t *room;
};

/* Whether it was sent. */
static bool send_one(struct sender *sender, uint32_t way) {
    struct flow *flow = &shared->flows[sender->number][sender->target];
    struct head head = {MAGIC, atomic_load(&flow->sent), length(&sender->state), (uint16_t)sender->number,
                        (uint16_t)sender->target, port_of(sender->fd), 0};
    if (head.sequence >= SEQUENCES) return false;
    memcpy(sender->room, &head, sizeof head);
    for (uint32_t at = sizeof head; at < head.len; at++) sender->room[at] = octet_of(&head, at);
    struct sockaddr_in to = address(shared->port[sender->target]);
    struct iovec parts[2] = {{sender->room, sizeof head}, {sender->room + sizeof head, head.len - sizeof head}};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = way ? sendto(sender->fd, sender->room, head.len, way == 2 ? MSG_DONTWAIT : 0, (void *)&to, sizeof to)
                       : sendmsg(sender->fd, &message, 0);
    if (sent == (ssize_t)head.len) atomic_fetch_add(&flow->sent, 1);
    else if (sent >= 0) wrong("%zd of %u octets were sent", sent, head.len);
    /* A receiver was killed, or there is no room. */
    else if (errno != ECONNREFUSED && errno != EAGAIN && errno != ENOBUFS) fail("a send");
    return sent >= 0;
}

static void *send_all(void *argument) {
    struct sender *sender = argument;
    uint64_t *state = &sender->state;
    sender->room = malloc(LONGEST);
    while (now() < ends_at) {
        if (next(state, 8) == 0) sender->target = (int)next(state, TARGETS);
        uint32_t way = next(state, 3);
        for (uint32_t left = 1 + next(state, next(state, 2) ? 300 : 3); left > 0 && now() < ends_at; left--)
            if (!send_one(sender, way)) break;
        rest(next(state, 3000) / 1e6);
    }
    free(sender->room);
    return NULL;
}

static int new_number(void) {
    int number = atomic_fetch_add(&shared->senders, 1);
    return number < SENDERS ? number : -1;
}

/* Threads of one socket, or of two. */
static void transmit(uint64_t state) {
    int sockets[] = {bound(0), bound(0)}, count = 1 + (int)next(&state, 3);
    pthread_t threads[3];
    static struct sender senders[3];
    double forks_at = now() + next(&state, 500) / 1e3;
    bool forks = with_forks && next(&state, 2);
    /* What is sent to a port without a socket is lost, and no socket counts it. */
    while (atomic_load(&shared->receivers) < TARGETS && !atomic_load(&shared->wrong)) rest(0.001);
    for (int i = 0; i < count; i++) {
        int fd = sockets[next(&state, 2)], target = (int)next(&state, TARGETS);
        senders[i] = (struct sender){fd, new_number(), target, state * 977 + (uint64_t)i + 1, NULL};
        if (senders[i].number < 0) exit(0);
        if (pthread_create(&threads[i], NULL, send_all, &senders[i])) fail("pthread_create");
    }
    pid_t child = -1;
    if (forks && forks_at < ends_at) {
        rest(forks_at - now() > 0 ? forks_at - now() : 0);
        child = fork();
        if (child == 0) {
            atomic_fetch_add(&shared->forked, 1);
            struct sender own = {sockets[next(&state, 2)], new_number(), 0, state * 31 + 7, NULL};
            if (own.number >= 0) send_all(&own);
            exit(0);
        }
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    if (child > 0) waitpid(child, NULL, 0);
    exit(0);
}

/* --- the program */

enum { PROCESSES = TARGETS + 5 };

static pid_t begin(int which, uint64_t state) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child > 0) return child;
    signal(SIGPIPE, SIG_IGN);
    state = state * 6364136223846793005u + (uint64_t)which * 1442695040888963407u + 1;
    if (which < TARGETS) receive(which, state);
    transmit(state);
    return 0;
}

static void await_end(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool killed = with_kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!well && !killed) wrong("a process ended with %#x", (unsigned)status);
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: crowd SEED MILLISECONDS [forks] [kills]\n"), 2;
    uint64_t state = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15u + 1;
    for (int i = 3; i < argc; i++) {
        with_forks |= !strcmp(argv[i], "forks");
        with_kills |= !strcmp(argv[i], "kills");
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED) return perror("mmap"), 2;
    for (int target = 0; target < TARGETS; target++) shared->port[target] = free_port(target, &state);
    ends_at = now() + atof(argv[2]) / 1e3;
    pid_t processes[PROCESSES];
    for (int which = 0; which < PROCESSES; which++) processes[which] = begin(which, state);
    while (with_kills && now() < ends_at - 0.1) {
        rest((20 + next(&state, 150)) / 1e3);
        int which = (int)next(&state, PROCESSES);
        kill(processes[which], SIGKILL);
        await_end(processes[which]);
        atomic_fetch_add(&shared->killed, 1);
        processes[which] = begin(which, state + atomic_load(&shared->killed));
    }
    for (int which = TARGETS; which < PROCESSES; which++) await_end(processes[which]);
    atomic_store(&shared->stopped, 1);
    for (int which = 0; which < TARGETS; which++) await_end(processes[which]);
    unsigned long sent = 0, came = 0;
    for (int sender = 0; sender < SENDERS; sender++)
        for (int target = 0; target < TARGETS; target++) {
            sent += atomic_load(&shared->flows[sender][target].sent);
            came += atomic_load(&shared->flows[sender][target].came);
        }
    printf("sent %lu, came %lu, dropped by the kernel %lu, disordered %lu, forks %lu, kills %lu\n", sent, came,
           atomic_load(&shared->dropped), atomic_load(&shared->disordered), atomic_load(&shared->forked),
           atomic_load(&shared->killed));
    return atomic_load(&shared->wrong) > 0;
}
