/* subnetes-ipam: the CNI plugin that a runtime executes once for every pod, so it must start in no time.
 *
 * It decides nothing. It carries the CNI_* variables and the network config to the node's agent (CNS) over a Unix
 * socket and prints what comes back. Only three things are its own: VERSION; where the socket is (ipam.socket of
 * the config); and what happens without an agent: DEL is queued on disk and succeeds, the others say "try again".
 *
 * Request: four bytes, the length of the environment block, most significant first; the block, "NAME=value\0" each;
 * the config until the end of writing. Answer: one byte, the exit code; what to print until the end.
 *
 * fallback.py behaves the same where there was no compiler; a test holds the two together.
 * No heap, no streams: one static buffer for the request and behind it the answer, of which only the pages that are
 * touched cost anything, but those the most of all that happens here. For the same reason bare.c may stand in for
 * the C library: what is called here beyond it, it must have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h> /* renameat */
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_CONFIG = 4 << 20,
    MOST_ENVIRONMENT = 1 << 20,
    MOST_ANSWER = 1 + (4 << 20), /* with its exit code */
    MOST_QUEUED = 16384, /* a page of tmpfs each */
    MOST_DEPTH = 100,    /* of objects and arrays in each other */
    LONGEST_PATH = 100,  /* sun_path has 108 */
};

enum { IO_FAILURE = 5, NOT_JSON = 6, BAD_CONFIG = 7, BAD_ENVIRONMENT = 4, TRY_AGAIN = 11, UNAVAILABLE = 50 };

#define VERSIONS "\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\""
#define NEWEST "1.1.0"
#define DEFAULT_SOCKET "/run/subnetes/cns.sock"

static char version[16];                   /* in which errors are said */
static char socket_path[LONGEST_PATH + 1]; /* empty: not configured */
static char request[4 + MOST_ENVIRONMENT + MOST_CONFIG + 1 + 8 + MOST_ANSWER] __attribute__((aligned(8)));
static char *answer; /* behind the request: mostly on the same page */

/* ---------------------------------------------------------------- printing */

static int write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t done = write(fd, bytes, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        bytes += done;
        length -= (size_t)done;
    }
    return 0;
}

static char *put(char *at, const char *text)
{
    return stpcpy(at, text);
}

static char *put_number(char *at, unsigned long number)
{
    char digits[24], *first = digits + sizeof digits - 1;
    *first = 0;
    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    return put(at, first);
}

/* Print a CNI error; the texts are ours, short, and need no escaping. Returns the exit code. */
static int fail(int code, const char *message, const char *details)
{
    char text[1024], *at = text;
    at = put(at, "{\"cniVersion\":\"");
    at = put(at, version);
    at = put(at, "\",\"code\":");
    at = put_number(at, (unsigned long)code);
    at = put(at, ",\"msg\":\"");
    at = put(at, message);
    at = put(at, "\",\"details\":\"");
    at = put(at, details);
    at = put(at, "\"}\n");
    write_all(STDOUT_FILENO, text, (size_t)(at - text));
    return 1;
}

/* ---------------------------------------------------------------- the walk through the config
 *
 * The whole text is checked, and three members are looked at: cniVersion, ipam, and socket within ipam. Of a
 * member that is there twice, the last counts, as JSON libraries have it. */

struct walk {
    const unsigned char *at, *end;
    const char *bad; /* set: a member of ours is not what it must be */
};

static int value(struct walk *w, int depth, int in_ipam);

static void space(struct walk *w)
{
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\t' || *w->at == '\n' || *w->at == '\r'))
        w->at++;
}

static int character(struct walk *w, char wanted)
{
    if (w->at >= w->end || *w->at != (unsigned char)wanted)
        return 0;
    w->at++;
    return 1;
}

static int hex4(struct walk *w, unsigned *code)
{
    *code = 0;
    if (w->end - w->at < 4)
        return 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = *w->at++;
        unsigned digit = c >= '0' && c <= '9'   ? c - 48u
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10u
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10u
                                                : 16u;
        if (digit > 15)
            return 0;
        *code = *code << 4 | digit;
    }
    return 1;
}

/* Where a decoded string goes; what does not fit is counted and dropped. */
struct text {
    char *bytes;
    size_t room, length;
};

static void add(struct text *t, unsigned byte)
{
    if (t->length < t->room)
        t->bytes[t->length] = (char)byte;
    t->length++;
}

static void add_code(struct text *t, unsigned code)
{
    if (code < 0x80) {
        add(t, code);
    } else if (code < 0x800) {
        add(t, 0xc0 | code >> 6);
        add(t, 0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        add(t, 0xe0 | code >> 12);
        add(t, 0x80 | (code >> 6 & 0x3f));
        add(t, 0x80 | (code & 0x3f));
    } else {
        add(t, 0xf0 | code >> 18);
        add(t, 0x80 | (code >> 12 & 0x3f));
        add(t, 0x80 | (code >> 6 & 0x3f));
        add(t, 0x80 | (code & 0x3f));
    }
}

static int escape(struct walk *w, struct text *t)
{
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    unsigned code, low;
    if (w->at >= w->end)
        return 0;
    unsigned char c = *w->at++;
    const char *found = c ? strchr(names, c) : NULL;
    if (found) {
        add(t, (unsigned char)means[found - names]);
        return 1;
    }
    if (c != 'u' || !hex4(w, &code))
        return 0;
    if (code >= 0xd800 && code < 0xe000) { /* half of a pair: the other half must follow */
        if (code >= 0xdc00 || !character(w, '\\') || !character(w, 'u') || !hex4(w, &low))
            return 0;
        if (low < 0xdc00 || low >= 0xe000)
            return 0;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    add_code(t, code);
    return 1;
}

/* One character of more than one byte, as UTF-8 has it: shortest form, no surrogates, up to U+10FFFF. */
static int many_bytes(struct walk *w, struct text *t)
{
    unsigned char first = *w->at;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || w->end - w->at <= more)
        return 0;
    unsigned code = first & (0x3fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((w->at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (w->at[i] & 0x3fu);
    }
    if (code < (more == 3 ? 0x10000u : more == 2 ? 0x800u : 0x80u) || code > 0x10ffff)
        return 0;
    if (code >= 0xd800 && code < 0xe000)
        return 0;
    for (int i = 0; i <= more; i++)
        add(t, *w->at++);
    return 1;
}

static int string(struct walk *w, struct text *t)
{
    if (!character(w, '"'))
        return 0;
    while (w->at < w->end) {
        unsigned char c = *w->at;
        if (c < 0x20)
            return 0;
        if (c >= 0x80) {
            if (!many_bytes(w, t))
                return 0;
            continue;
        }
        w->at++;
        if (c == '"')
            return 1;
        if (c != '\\')
            add(t, c);
        else if (!escape(w, t))
            return 0;
    }
    return 0;
}

static int digits(struct walk *w)
{
    const unsigned char *first = w->at;
    while (w->at < w->end && *w->at >= '0' && *w->at <= '9')
        w->at++;
    return w->at > first;
}

static int number(struct walk *w)
{
    character(w, '-');
    if (!character(w, '0') && !digits(w))
        return 0;
    if (character(w, '.') && !digits(w))
        return 0;
    if (character(w, 'e') || character(w, 'E')) {
        if (!character(w, '+'))
            character(w, '-');
        return digits(w);
    }
    return 1;
}

static int word(struct walk *w, const char *wanted)
{
    while (*wanted)
        if (!character(w, *wanted++))
            return 0;
    return 1;
}

static int array(struct walk *w, int depth)
{
    w->at++;
    space(w);
    if (character(w, ']'))
        return 1;
    do
        if (!value(w, depth, 0))
            return 0;
    while (character(w, ','));
    return character(w, ']');
}

static int is(const struct text *t, const char *wanted)
{
    return t->length == strlen(wanted) && memcmp(t->bytes, wanted, t->length) == 0;
}

static int next_is(const struct walk *w, char wanted)
{
    return w->at < w->end && *w->at == (unsigned char)wanted;
}

static int read_version(struct walk *w)
{
    static const char known[] = VERSIONS;
    char bytes[sizeof version], quoted[sizeof version + 2];
    struct text t = {bytes, sizeof bytes - 1, 0};
    strcpy(version, NEWEST);
    if (!next_is(w, '"'))
        return value(w, 1, 0); /* not a string: the agent says what is wrong with it */
    if (!string(w, &t))
        return 0;
    if (t.length == 0 || t.length >= sizeof bytes || memchr(bytes, 0, t.length))
        return 1;
    bytes[t.length] = 0;
    put(put(put(quoted, "\""), bytes), "\"");
    if (strspn(bytes, "0123456789.") == t.length && strstr(known, quoted))
        strcpy(version, bytes);
    return 1;
}

static int read_socket(struct walk *w)
{
    struct text t = {socket_path, sizeof socket_path - 1, 0};
    if (!next_is(w, '"')) {
        w->bad = "ipam.socket is not a string";
        return value(w, 2, 0);
    }
    if (!string(w, &t))
        return 0;
    w->bad = NULL;
    if (t.length > t.room || t.length == 0 || socket_path[0] != '/' || memchr(socket_path, 0, t.length))
        w->bad = "ipam.socket must be an absolute path of at most 100 bytes";
    else
        socket_path[t.length] = 0;
    return 1;
}

static int read_ipam(struct walk *w)
{
    socket_path[0] = 0;
    w->bad = NULL;
    return value(w, 1, 1);
}

static int member(struct walk *w, int depth, int in_ipam)
{
    char bytes[16];
    struct text name = {bytes, sizeof bytes, 0};
    space(w);
    if (!string(w, &name))
        return 0;
    space(w);
    if (!character(w, ':'))
        return 0;
    space(w);
    if (depth == 1 && is(&name, "cniVersion"))
        return read_version(w);
    if (depth == 1 && is(&name, "ipam"))
        return read_ipam(w);
    if (in_ipam && is(&name, "socket"))
        return read_socket(w);
    return value(w, depth, 0);
}

static int object(struct walk *w, int depth, int in_ipam)
{
    w->at++;
    space(w);
    if (character(w, '}'))
        return 1;
    do {
        if (!member(w, depth, in_ipam))
            return 0;
        space(w);
    } while (character(w, ','));
    return character(w, '}');
}

/* One value and the space around it; `depth` is how many values are around this one. */
static int value(struct walk *w, int depth, int in_ipam)
{
    char nowhere[1];
    struct text dropped = {nowhere, 0, 0};
    int sound = 0;
    space(w);
    if (w->at >= w->end)
        return 0;
    switch (*w->at) {
    case '{':
        sound = depth < MOST_DEPTH && object(w, depth + 1, in_ipam);
        break;
    case '[':
        sound = depth < MOST_DEPTH && array(w, depth + 1);
        break;
    case '"':
        sound = string(w, &dropped);
        break;
    case 't':
        sound = word(w, "true");
        break;
    case 'f':
        sound = word(w, "false");
        break;
    case 'n':
        sound = word(w, "null");
        break;
    default:
        sound = number(w);
    }
    space(w);
    return sound;
}

/* NULL, or what is wrong; then `code` is the CNI error code. */
static const char *read_config(const char *bytes, size_t length, int *code)
{
    struct walk w = {(const unsigned char *)bytes, (const unsigned char *)bytes + length, NULL};
    *code = NOT_JSON;
    space(&w);
    if (!next_is(&w, '{') || !value(&w, 0, 0) || w.at != w.end) {
        strcpy(version, NEWEST);
        return "the network config on standard input is not a JSON object";
    }
    *code = BAD_CONFIG;
    return w.bad;
}

/* ---------------------------------------------------------------- the request */

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

/* The CNI_* variables, after the length of them all. Returns the bytes used, 0 if they are too many. */
static size_t take_environment(void)
{
    extern char **environ;
    size_t used = 4;
    for (char **each = environ; *each; each++) {
        size_t length = strlen(*each) + 1;
        if (strncmp(*each, "CNI_", 4) != 0)
            continue;
        if (length > 4 + MOST_ENVIRONMENT - used)
            return 0;
        memcpy(request + used, *each, length);
        used += length;
    }
    uint32_t block = (uint32_t)(used - 4);
    for (int i = 0; i < 4; i++)
        request[i] = (char)(block >> (24 - 8 * i));
    return used;
}

/* Standard input to its end, into `room` bytes. Returns its length, -1 on an error, -2 if there is more. */
static ssize_t take_config(char *into, size_t room)
{
    size_t length = 0;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, into + length, room - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return (ssize_t)length;
        length += (size_t)got;
        if (length == room)
            return -2;
    }
}

/* ---------------------------------------------------------------- the agent */

static int ready(int fd, short what, long deadline)
{
    for (;;) {
        long left = deadline - milliseconds();
        struct pollfd wanted = {fd, what, 0};
        int got = poll(&wanted, 1, left > 0 ? (int)left : 0);
        if (got < 0 && errno == EINTR)
            continue;
        return got > 0;
    }
}

/* A full backlog answers EAGAIN at once, so it is asked again until the deadline. */
static int connect_to(int fd, const char *path, long deadline)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timespec pause = {0, 5000000};
    strcpy(address.sun_path, path);
    while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -1;
        if (milliseconds() >= deadline)
            return -1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

static int send_all(int fd, const char *bytes, size_t length, long deadline)
{
    while (length > 0) {
        ssize_t done = send(fd, bytes, length, MSG_NOSIGNAL);
        if (done < 0 && (errno == EINTR || (errno == EAGAIN && ready(fd, POLLOUT, deadline))))
            continue;
        if (done < 0)
            return -1;
        bytes += done;
        length -= (size_t)done;
    }
    return shutdown(fd, SHUT_WR);
}

static ssize_t receive_all(int fd, long deadline)
{
    size_t length = 0;
    while (length < MOST_ANSWER) {
        if (!ready(fd, POLLIN, deadline))
            return -1;
        ssize_t got = recv(fd, answer + length, MOST_ANSWER - length, 0);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return (ssize_t)length;
        length += (size_t)got;
    }
    return -1;
}

/* Carry the request there and the answer back. Returns the answer's length; below 1 there is none. */
static ssize_t ask(const char *path, size_t length, long patience)
{
    long deadline = milliseconds() + patience;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ssize_t got = -1;
    if (fd < 0)
        return -1;
    if (connect_to(fd, path, deadline) == 0 && send_all(fd, request, length, deadline) == 0)
        got = receive_all(fd, deadline);
    close(fd);
    return got;
}

/* ---------------------------------------------------------------- the queue of DELs */

static int make_folders(char *path)
{
    for (char *at = path + 1;; at++) {
        char was = *at;
        if (was != '/' && was != 0)
            continue;
        *at = 0;
        int made = mkdir(path, 0700);
        *at = was;
        if (made != 0 && errno != EEXIST)
            return -1;
        if (was == 0)
            return 0;
    }
}

/* Counted without readdir, which would allocate; the answer's buffer is free, for there is no answer. */
static int is_full(int folder)
{
    int count = 0;
    long got;
    while ((got = syscall(SYS_getdents64, folder, answer, 32768)) > 0)
        for (long at = 0; at < got; at += *(unsigned short *)(answer + at + 16)) /* d_reclen */
            count++;
    return got < 0 || count > MOST_QUEUED;
}

/* The request as it is, under a name that sorts by time; it appears whole, by rename. */
static int enqueue(const char *path, size_t length)
{
    char folder_path[LONGEST_PATH + 8], hidden[64] = ".", *name = hidden + 1, *at = name;
    struct timespec now;
    put(put(folder_path, path), ".queue");
    if (make_folders(folder_path) != 0)
        return -1;
    int folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || is_full(folder))
        return -1;
    clock_gettime(CLOCK_REALTIME, &now);
    at = put_number(at, (unsigned long)now.tv_sec);
    at = put_number(at, 1000000000ul + (unsigned long)now.tv_nsec); /* a leading 1 keeps the zeros */
    at = put(at, "-");
    at = put_number(at, (unsigned long)getpid());
    int fd = openat(folder, hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int failed = write_all(fd, request, length) != 0;
    failed |= close(fd) != 0;
    if (failed || renameat(folder, hidden, folder, name) != 0) {
        unlinkat(folder, hidden, 0);
        return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- the verbs */

static const char *variable(const char *name)
{
    extern char **environ;
    size_t length = strlen(name);
    for (char **each = environ; *each; each++)
        if (strncmp(*each, name, length) == 0 && (*each)[length] == '=')
            return *each + length + 1;
    return "";
}

static int say_version(void)
{
    char text[128], *at = text;
    at = put(put(put(at, "{\"cniVersion\":\""), version), "\",\"supportedVersions\":[" VERSIONS "]}\n");
    return write_all(STDOUT_FILENO, text, (size_t)(at - text)) == 0 ? 0 : 1;
}

static long patience_for(const char *command)
{
    return strcmp(command, "ADD") == 0      ? 60000
           : strcmp(command, "STATUS") == 0 ? 5000
           : strcmp(command, "DEL") == 0    ? 5000
                                            : 30000;
}

static int without_agent(const char *command, const char *path, size_t length)
{
    if (strcmp(command, "DEL") == 0) {
        if (!variable("CNI_CONTAINERID")[0] || !variable("CNI_IFNAME")[0])
            return fail(BAD_ENVIRONMENT, "DEL needs CNI_CONTAINERID and CNI_IFNAME", "");
        if (enqueue(path, length) == 0)
            return 0;
        return fail(TRY_AGAIN, "the agent does not answer and DEL cannot be queued",
                    "start the agent (subnetes agent), or look at the folder named after its socket, .queue");
    }
    return fail(strcmp(command, "STATUS") == 0 ? UNAVAILABLE : TRY_AGAIN, "the agent does not answer",
                "is it running (subnetes agent), and is ipam.socket of the network config its socket?");
}

static int carry(const char *command, size_t length)
{
    const char *path = socket_path[0] ? socket_path : variable("SUBNETES_SOCKET");
    if (!path[0])
        path = DEFAULT_SOCKET;
    if (path[0] != '/' || strlen(path) > LONGEST_PATH)
        return fail(BAD_ENVIRONMENT, "SUBNETES_SOCKET must be an absolute path of at most 100 bytes", "");
    answer = request + ((length + 7) & ~(size_t)7);
    ssize_t got = ask(path, length, patience_for(command));
    if (got < 1)
        return without_agent(command, path, length);
    if (write_all(STDOUT_FILENO, answer + 1, (size_t)got - 1) != 0)
        return 1;
    return (unsigned char)answer[0];
}

int main(void)
{
    const char *command = variable("CNI_COMMAND");
    int code, asks_version = strcmp(command, "VERSION") == 0;
    strcpy(version, NEWEST);
    signal(SIGPIPE, SIG_IGN);
    if (!command[0])
        return fail(BAD_ENVIRONMENT, "CNI_COMMAND is not set",
                    "this is a CNI plugin: a container runtime executes it");
    size_t used = take_environment();
    if (used == 0)
        return fail(BAD_ENVIRONMENT, "the CNI_ variables are longer than 1 MiB", "");
    ssize_t length = take_config(request + used, MOST_CONFIG + 1);
    if (length == -1)
        return fail(IO_FAILURE, "standard input cannot be read", "");
    if (length == -2)
        return fail(NOT_JSON, "the network config is longer than 4 MiB", "");
    const char *wrong = read_config(request + used, (size_t)length, &code);
    if (asks_version)
        return say_version();
    if (wrong)
        return fail(code, wrong, "see the plugin's section of the network config");
    return carry(command, used + (size_t)length);
}
