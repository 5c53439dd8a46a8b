/*
 * The createRuntime hook of nic.drakit.dev: hands a starting container's network namespace to the driver and waits until its share is there.
 *
 *     attach SOCKET SECONDS CLAIM DEVICE SHARE      with the container's OCI state on standard input; SHARE is "-" for a device given whole
 *     attach --check                                succeeds: this file can be executed here
 *
 * Fails closed: whatever goes wrong, the exit status is 1 and standard error says why in one sentence, which the runtime shows the pod's owner.
 * Of the state only the top-level pid and id and a few annotations are read. Pods choose annotations, so nothing nested is taken for a top-level
 * field, a field that comes twice is refused, and values that travel on are made of plain characters. Messages: drakit_nic/attach/server.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { STATE_MAX = 65536, DEPTH_MAX = 32, WORD_MAX = 253, MESSAGE_MAX = 2048, PID_DIGITS_MAX = 9, RETRY_MS = 50 };

struct word { const char *text; int size; };
struct state { struct word id, sandbox, pod; long pid; };
typedef bool reader(const char **at, struct word key, int depth, struct state *state);

static _Noreturn void fail(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	fputs("drakit: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	exit(1);
}

static void too_late(int number) {
	static const char sentence[] = "drakit: the NIC driver on this node did not answer in time; the container is started again by itself\n";
	(void)number;
	if (write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0)
		_exit(2);
	_exit(1);
}

static char next(const char **at) {
	*at += strspn(*at, " \t\r\n");
	return **at;
}

static bool take(const char **at, char sign) {
	if (next(at) != sign)
		return false;
	++*at;
	return true;
}

/* A string as it is written, without its quotes; one with escapes is no name that is looked for. */
static bool string(const char **at, struct word *found) {
	if (!take(at, '"'))
		return false;
	found->text = *at;
	for (; **at != '"'; ++*at) {
		if (**at == '\\')
			++*at;
		if ((unsigned char)**at < ' ')
			return false;
	}
	found->size = (int)(*at - found->text);
	++*at;
	return true;
}

static bool skip(const char **at, struct word key, int depth, struct state *state);

static bool object(const char **at, int depth, reader *read, struct state *state) {
	if (depth == 0 || !take(at, '{'))
		return false;
	if (take(at, '}'))
		return true;
	do {
		struct word key;
		if (!string(at, &key) || !take(at, ':') || !read(at, key, depth - 1, state))
			return false;
	} while (take(at, ','));
	return take(at, '}');
}

static bool skip(const char **at, struct word key, int depth, struct state *state) {
	switch (next(at)) {
	case '{':
		return object(at, depth, skip, state);
	case '"':
		return string(at, &key);
	case '[':
		if (depth == 0)
			return false;
		++*at;
		if (take(at, ']'))
			return true;
		do {
			if (!skip(at, key, depth - 1, state))
				return false;
		} while (take(at, ','));
		return take(at, ']');
	default: {
		size_t size = strspn(*at, "+-.0123456789Eaeflnrstu");
		*at += size;
		return size > 0;
	}
	}
}

static bool is(struct word word, const char *name) {
	return word.size == (int)strlen(name) && memcmp(word.text, name, (size_t)word.size) == 0;
}

/* A word of plain characters, for the first time. */
static bool plain(const char **at, struct word *into) {
	struct word found;
	if (into->text || !string(at, &found) || found.size == 0 || found.size > WORD_MAX)
		return false;
	for (int i = 0; i < found.size; i++)
		if (!strchr("-._:0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", found.text[i]))
			return false;
	*into = found;
	return true;
}

static bool annotation(const char **at, struct word key, int depth, struct state *state) {
	if (is(key, "io.kubernetes.cri.sandbox-id") || is(key, "io.kubernetes.cri-o.SandboxID"))
		return plain(at, &state->sandbox);
	if (is(key, "io.kubernetes.cri.sandbox-uid"))
		return plain(at, &state->pod);
	return skip(at, key, depth, state);
}

static bool field(const char **at, struct word key, int depth, struct state *state) {
	if (is(key, "id"))
		return plain(at, &state->id);
	if (is(key, "annotations") && next(at) == '{')
		return object(at, depth, annotation, state);
	if (!is(key, "pid"))
		return skip(at, key, depth, state);
	next(at);
	size_t digits = strspn(*at, "0123456789");
	if (state->pid || digits == 0 || digits > PID_DIGITS_MAX)
		return false;
	state->pid = strtol(*at, NULL, 10);
	*at += digits;
	return state->pid > 0;
}

/* The state in the text, which ends with a NUL at the given size. Kept apart from reading, so that it can be fuzzed. */
static bool parse_state(const char *text, size_t size, struct state *state) {
	const char *at = text;
	return object(&at, DEPTH_MAX, field, state) && next(&at) == '\0' && at == text + size;
}

static void read_state(char *text, struct state *state) {
	size_t size = 0;
	for (ssize_t got = 1; got > 0 && size <= STATE_MAX; size += (size_t)got)
		if ((got = read(STDIN_FILENO, text + size, STATE_MAX + 1 - size)) < 0)
			fail("the container runtime's state cannot be read: %s", strerror(errno));
	if (size > STATE_MAX)
		fail("the container runtime's state is longer than %d bytes", STATE_MAX);
	text[size] = '\0';
	if (!parse_state(text, size, state))
		fail("the container runtime's state is not the JSON of OCI that is expected");
	if (!state->pid || !state->id.text)
		fail("the container runtime's state names no %s", state->pid ? "id" : "pid");
}

/* The connection to the driver; one that is just being restarted is waited for. */
static int reach(const char *path, int seconds) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address.sun_path)
		fail("the path of the NIC driver's socket is too long");
	strcpy(address.sun_path, path);
	int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connection < 0)
		fail("no socket can be opened: %s", strerror(errno));
	for (int left = seconds * 500 / RETRY_MS;; left--) {
		if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
			return connection;
		if (left == 0 || (errno != ECONNREFUSED && errno != ENOENT))
			break;
		nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
	}
	fail("the NIC driver on this node is not running (%s); the container is started again by itself", strerror(errno));
}

static void ask(int connection, int descriptor, char *text, size_t size) {
	union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int))]; } control = {0};
	struct iovec part = {.iov_base = text, .iov_len = size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
	if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0)
		fail("the NIC driver on this node cannot be asked: %s", strerror(errno));
}

int main(int count, char **arguments) {
	static char text[STATE_MAX + 2], message[MESSAGE_MAX], path[64];
	struct state state = {0};
	if (count == 2 && strcmp(arguments[1], "--check") == 0)
		return 0;
	int seconds = count == 6 ? atoi(arguments[2]) : 0;
	if (seconds <= 0)
		fail("usage: attach SOCKET SECONDS CLAIM DEVICE SHARE");
	signal(SIGALRM, too_late);
	alarm((unsigned)seconds);

	read_state(text, &state);
	snprintf(path, sizeof path, "/proc/%ld/ns/net", state.pid);
	int space = open(path, O_RDONLY | O_CLOEXEC);
	if (space < 0)
		fail("the container's network namespace cannot be opened: %s: %s", path, strerror(errno));
	int size = snprintf(message, sizeof message, "attach 1\n%s\n%s\n%s\n%.*s\n%.*s\n%.*s", arguments[3], arguments[4], arguments[5],
		state.id.size, state.id.text, state.sandbox.size, state.sandbox.text, state.pod.size, state.pod.text);
	if (size >= (int)sizeof message)
		fail("the names of claim and device are too long");

	int connection = reach(arguments[1], seconds);
	ask(connection, space, message, (size_t)size);
	ssize_t got = recv(connection, message, sizeof message - 1, 0);
	if (got <= 0)
		fail("the NIC driver on this node broke off; the container is started again by itself");
	message[got] = '\0';
	if (strcmp(message, "ok") != 0)
		fail("%s", strncmp(message, "no ", 3) == 0 ? message + 3 : "the NIC driver on this node gave no answer that is understood");
	return 0;
}
