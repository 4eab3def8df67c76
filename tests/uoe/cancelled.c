// A program that knows nothing of Weft: a thread that is cancelled in `sendto`. Its handler runs, and it is joined.
//
//     cancelled PORT
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in to = {.sin_family = AF_INET};

static void clean(void *nothing) {
    (void)nothing;
    printf("the handler ran\n");
}

static void *send_for_ever(void *nothing) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    pthread_cleanup_push(clean, NULL);
    for (;;)
        sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
    pthread_cleanup_pop(0);
    return nothing;
}

int main(int count, char **words) {
    pthread_t thread;
    void *result;
    if (count < 2)
        return 2;
    to.sin_port = htons(atoi(words[1]));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    pthread_create(&thread, NULL, send_for_ever, NULL);
    usleep(500000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    return result != PTHREAD_CANCELED;
}
