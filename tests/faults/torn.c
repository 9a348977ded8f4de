/* Disturbs one write to a database file or its log, and kills the process.
 *
 * Loaded with LD_PRELOAD. TORN_LOG names a file that gets a line for each write: its number, offset,
 * bytes, and whether the file is the log. TORN_AT is the number of the write to disturb, TORN_HOW
 * what to do with it: `cut` writes the first pages of 4,096 bytes of its first half, `skip` none of
 * it, `whole` all of it. The variables are read at each write, so that a fork can set them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, NAME = 4096 };

typedef ssize_t (*at_offset)(int, const void *, size_t, off_t);
typedef ssize_t (*at_end)(int, const void *, size_t);

static long number = 0;

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), rest = strlen(end);
    return length >= rest && !strcmp(text + length - rest, end);
}

/* 1: a database, 2: its log, 0: another file. */
static int kind_of(int file) {
    char link[64], path[NAME];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, NAME - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (ends_with(path, ".duckdb") || ends_with(path, ".compact") || ends_with(path, ".rebuilt"))
        return 1;
    return ends_with(path, ".duckdb.wal") ? 2 : 0;
}

/* Return how many bytes to write before the process is killed; -1: it goes on. */
static ssize_t before_the_end(int file, size_t bytes, off_t offset) {
    const char *log = getenv("TORN_LOG"), *at = getenv("TORN_AT"), *how = getenv("TORN_HOW");
    int kind = log || at ? kind_of(file) : 0;
    if (!kind) return -1;
    number++;
    if (log) {
        FILE *opened = fopen(log, "a");
        if (opened) {
            fprintf(opened, "%ld %ld %zu %d\n", number, (long)offset, bytes, kind == 2);
            fclose(opened);
        }
    }
    if (!at || number != atol(at)) return -1;
    if (how && !strcmp(how, "whole")) return (ssize_t)bytes;
    if (how && !strcmp(how, "skip")) return 0;
    return (ssize_t)(bytes / 2 / PAGE * PAGE);
}

static void end(void) {
    kill(getpid(), SIGKILL);
    pause();
}

static ssize_t put_at(const char *name, int file, const void *from, size_t bytes, off_t offset) {
    at_offset write_at = (at_offset)dlsym(RTLD_NEXT, name);
    ssize_t some = before_the_end(file, bytes, offset);
    if (some < 0) return write_at(file, from, bytes, offset);
    if (some > 0) write_at(file, from, (size_t)some, offset);
    end();
    return -1;
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset) {
    return put_at("pwrite", file, from, bytes, offset);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off_t offset) {
    return put_at("pwrite64", file, from, bytes, offset);
}

ssize_t write(int file, const void *from, size_t bytes) {
    static at_end write_to;
    if (!write_to) write_to = (at_end)dlsym(RTLD_NEXT, "write");
    ssize_t some = before_the_end(file, bytes, -1);
    if (some < 0) return write_to(file, from, bytes);
    if (some > 0) write_to(file, from, (size_t)some);
    end();
    return -1;
}
