/* Hands each write below a folder to the process that watches it.
 *
 * Loaded with LD_PRELOAD. TORN_PIPES has two file descriptors, "ASK ANSWER", and TORN_BELOW is the
 * folder. Before each write, after a part of it and at its end, a line goes to ASK:
 *
 *     OFFSET BYTES DONE PATH
 *
 * OFFSET is -1 where the write is appended. The answer is a number of eight bytes: how many bytes to
 * write before the next question, or -1 to end by SIGKILL. The writer waits for it, and so does
 * every other thread that writes. Meanwhile the files are as a kill at this moment leaves them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 4096, LINE = NAME + 80 };

typedef ssize_t (*at_offset)(int, const void *, size_t, off_t);
typedef ssize_t (*at_end)(int, const void *, size_t);

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static ssize_t put(int file, const char *from, size_t bytes, off_t offset) {
    static at_end append;
    static at_offset place;
    if (!append) append = (at_end)dlsym(RTLD_NEXT, "write");
    if (!place) place = (at_offset)dlsym(RTLD_NEXT, "pwrite64");
    return offset < 0 ? append(file, from, bytes) : place(file, from, bytes, offset);
}

/* Return whether the file is below the folder; `path` gets its name there. */
static int is_watched(int file, int *ask, int *answer, char *path) {
    const char *pipes = getenv("TORN_PIPES"), *below = getenv("TORN_BELOW");
    if (!pipes || !below || sscanf(pipes, "%d %d", ask, answer) != 2) return 0;
    char link[64], target[NAME];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length <= 0) return 0;
    target[length] = 0;
    size_t depth = strlen(below);
    if (strncmp(target, below, depth) || target[depth] != '/') return 0;
    strcpy(path, target + depth + 1);
    return 1;
}

/* Return how many bytes to write next; all if nobody answers. */
static int64_t asked(int ask, int answer, off_t offset, size_t bytes, size_t done, const char *path) {
    char line[LINE];
    int length = snprintf(line, sizeof line, "%lld %zu %zu %s\n", (long long)offset, bytes, done, path);
    int64_t some;
    if (put(ask, line, (size_t)length, -1) != length) return (int64_t)(bytes - done);
    return read(answer, &some, sizeof some) == sizeof some ? some : (int64_t)(bytes - done);
}

static ssize_t watched(int file, const char *from, size_t bytes, off_t offset) {
    int ask, answer;
    char path[NAME];
    if (!is_watched(file, &ask, &answer, path)) return put(file, from, bytes, offset);
    pthread_mutex_lock(&one_at_a_time);
    size_t done = 0;
    ssize_t result = 0;
    for (;;) {
        int64_t some = asked(ask, answer, offset, bytes, done, path);
        if (some < 0) {
            kill(getpid(), SIGKILL);
            pause();
        }
        if (done == bytes) break;
        result = put(file, from + done, (size_t)some, offset < 0 ? offset : offset + (off_t)done);
        if (result < 0) break;
        done += (size_t)result;
    }
    int error = errno;
    pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return done ? (ssize_t)done : result;
}

ssize_t write(int file, const void *from, size_t bytes) {
    return watched(file, from, bytes, -1);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset) {
    return watched(file, from, bytes, offset);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off_t offset) {
    return watched(file, from, bytes, offset);
}
