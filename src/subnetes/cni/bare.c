/* The few functions of a C library that subnetes-ipam.c calls, for x86-64 Linux and nothing else.
 *
 * A static C library prepares itself for far more than the plugin does: locales, threads, memory, streams. That
 * touches some 25 pages, and to have the kernel map them takes longer than all the plugin's own work. With this
 * file in its place there are some 7. hatch_build.py links it where it can, and the C library elsewhere; the
 * plugin's source is the same. Everything behaves as POSIX says, as far as the plugin can tell the difference.
 */
#if !defined(__x86_64__) || !defined(__linux__) || defined(__ILP32__)
#error "only for x86-64 Linux: link the C library instead"
#endif

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(void);

char **environ;

/* ---------------------------------------------------------------- the beginning */

/* The kernel starts here: the stack has argc, the arguments, a null, the environment. */
__asm__(".text\n"
        ".global _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call begin\n"
        "    hlt\n");

__attribute__((noreturn, used)) void begin(long *stack);

/* ---------------------------------------------------------------- system calls */

static long raw(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

int *__errno_location(void)
{
    static int number;
    return &number;
}

/* As the C library reports it: -1, and the reason in errno. */
static long call(long number, long a, long b, long c, long d)
{
    long result = raw(number, a, b, c, d);
    if (result >= 0 || result < -4095)
        return result;
    errno = (int)-result;
    return -1;
}

void begin(long *stack)
{
    environ = (char **)(stack + 1 + stack[0] + 1);
    raw(SYS_exit_group, main(), 0, 0, 0);
    __builtin_unreachable();
}

ssize_t read(int fd, void *bytes, size_t length)
{
    return call(SYS_read, fd, (long)bytes, (long)length, 0);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    return call(SYS_write, fd, (long)bytes, (long)length, 0);
}

int close(int fd)
{
    return (int)call(SYS_close, fd, 0, 0, 0);
}

int open(const char *path, int flags, ...)
{
    return (int)call(SYS_open, (long)path, flags, 0, 0); /* the plugin makes files by openat only */
}

int openat(int folder, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    return (int)call(SYS_openat, folder, (long)name, flags, mode);
}

int renameat(int from, const char *old, int to, const char *new)
{
    return (int)call(SYS_renameat, from, (long)old, to, (long)new);
}

int unlinkat(int folder, const char *name, int flags)
{
    return (int)call(SYS_unlinkat, folder, (long)name, flags, 0);
}

int mkdir(const char *path, mode_t mode)
{
    return (int)call(SYS_mkdir, (long)path, mode, 0, 0);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    return (int)call(SYS_poll, (long)fds, (long)count, timeout, 0);
}

int socket(int family, int type, int protocol)
{
    return (int)call(SYS_socket, family, type, protocol, 0);
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    return (int)call(SYS_connect, fd, (long)address, length, 0);
}

int shutdown(int fd, int how)
{
    return (int)call(SYS_shutdown, fd, how, 0, 0);
}

pid_t getpid(void)
{
    return (pid_t)call(SYS_getpid, 0, 0, 0, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    return (int)call(SYS_clock_gettime, clock, (long)now, 0, 0);
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    return (int)call(SYS_nanosleep, (long)time, (long)left, 0, 0);
}

/* Up to three arguments. */
long syscall(long number, ...)
{
    va_list more;
    va_start(more, number);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long);
    va_end(more);
    return call(number, a, b, c, 0);
}

/* sendto and recvfrom without an address; both have six arguments, the last two of them none here. */
static long transfer(long number, int fd, const void *bytes, size_t length, int flags)
{
    long result;
    register long fourth __asm__("r10") = flags;
    register long fifth __asm__("r8") = 0;
    register long sixth __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"((long)fd), "S"(bytes), "d"(length), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    return transfer(SYS_sendto, fd, bytes, length, flags);
}

ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
    return transfer(SYS_recvfrom, fd, bytes, length, flags);
}

/* To ignore a signal or have its default; a handler would need more than this. */
sighandler_t signal(int number, sighandler_t handler)
{
    struct {
        sighandler_t handler;
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {handler, 0, 0, 0};
    return call(SYS_rt_sigaction, number, (long)&action, 0, sizeof action.mask) ? SIG_ERR : SIG_DFL;
}

/* ---------------------------------------------------------------- strings */

void *memcpy(void *restrict to, const void *restrict from, size_t length)
{
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(length) : : "memory");
    return to;
}

void *memset(void *bytes, int byte, size_t length)
{
    void *at = bytes;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(length) : "a"(byte) : "memory");
    return bytes;
}

int memcmp(const void *one, const void *other, size_t length)
{
    const unsigned char *a = one, *b = other;
    for (; length > 0; length--, a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}

void *memchr(const void *bytes, int byte, size_t length)
{
    for (const unsigned char *at = bytes; length > 0; length--, at++)
        if (*at == (unsigned char)byte)
            return (void *)(size_t)at;
    return NULL;
}

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

char *stpcpy(char *restrict to, const char *restrict from)
{
    while ((*to = *from++))
        to++;
    return to;
}

char *strcpy(char *restrict to, const char *restrict from)
{
    stpcpy(to, from);
    return to;
}

int strncmp(const char *one, const char *other, size_t length)
{
    for (; length > 0; length--, one++, other++)
        if (*one != *other || !*one)
            return (unsigned char)*one - (unsigned char)*other;
    return 0;
}

int strcmp(const char *one, const char *other)
{
    return strncmp(one, other, (size_t)-1);
}

char *strchr(const char *text, int wanted)
{
    for (;; text++) {
        if (*text == (char)wanted)
            return (char *)(size_t)text;
        if (!*text)
            return NULL;
    }
}

size_t strspn(const char *text, const char *allowed)
{
    size_t length = 0;
    while (text[length] && strchr(allowed, text[length]))
        length++;
    return length;
}

char *strstr(const char *text, const char *wanted)
{
    for (size_t length = strlen(wanted); *text; text++)
        if (strncmp(text, wanted, length) == 0)
            return (char *)(size_t)text;
    return *wanted ? NULL : (char *)(size_t)text;
}
