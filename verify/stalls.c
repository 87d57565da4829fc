/* Makes a reading of the clock stall now and then, as a busy machine does: loaded before
 * libc by verify/stalls.sh, it sleeps at random before and after `clock_gettime`.
 *
 *   REQUEUE_STALL_PPM     how many of a million readings stall on each side
 *   REQUEUE_STALL_MICROS  for how long at most
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long number(const char *name, long otherwise) {
    const char *said = getenv(name);
    return said ? atol(said) : otherwise;
}

/* Two threads that come first at once both read the same numbers. */
static volatile long ppm = -1, micros;

static void maybe_stall(void) {
    static __thread uint64_t state; /* of a xorshift generator, seeded by the thread and the time */
    if (ppm < 0) {
        micros = number("REQUEUE_STALL_MICROS", 15000);
        ppm = number("REQUEUE_STALL_PPM", 60000);
    }
    if (state == 0) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        state = ((uint64_t)syscall(SYS_gettid) << 32) ^ (uint64_t)now.tv_nsec ^ 0x9e3779b97f4a7c15u;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (micros > 0 && (long)(state % 1000000) < ppm) {
        struct timespec stall = {0, (long)((state >> 24) % (uint64_t)micros) * 1000};
        syscall(SYS_nanosleep, &stall, NULL);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    maybe_stall();
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    maybe_stall();
    return result;
}
