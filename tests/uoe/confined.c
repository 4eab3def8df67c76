// A program that knows nothing of Weft: it forbids itself calls that a plain receive does not make, and receives.
//
//     confined
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FORBID(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

int main(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(SYS_ppoll),
        FORBID(SYS_getsockname),
        FORBID(SYS_recvmsg),
        FORBID(SYS_getsockopt),
        FORBID(SYS_fcntl),
        FORBID(SYS_clone),
        FORBID(SYS_clone3),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    char octets[100];
    if (bind(fd, (struct sockaddr *)&at, len) || getsockname(fd, (struct sockaddr *)&at, &len))
        return 2;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 2;
    printf("port %d\n", ntohs(at.sin_port));
    fflush(stdout);
    printf("%zd octets\n", recvfrom(fd, octets, sizeof octets, 0, NULL, NULL));
    return 0;
}
