/*
 * The probe of the driver's pod: asks the driver on its unix socket, and costs less than a millisecond of processor time.
 *
 *     drakit-probe SOCKET PATH      for example: drakit-probe /run/drakit/health.sock /readyz
 *
 * The exit status is 0 where the driver answers 200, else 1. What the driver said is written to standard output, which the kubelet puts into the
 * pod's event. The driver serves these pages in drakit/serving/http.py.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MAX = 4096, REQUEST_MAX = 256, SECONDS = 5, STATUS_AT = 9 };

static int fail(const char *what) {
	fprintf(stderr, "drakit-probe: %s: %s\n", what, errno == EAGAIN ? "no answer in time" : strerror(errno));
	return 1;
}

int main(int count, char **words) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval patience = { .tv_sec = SECONDS };
	char request[REQUEST_MAX], answer[ANSWER_MAX + 1];
	size_t size = 0;

	if (count != 3 || strlen(words[1]) >= sizeof address.sun_path) {
		fputs("usage: drakit-probe SOCKET PATH, for example drakit-probe /run/drakit/health.sock /readyz\n", stderr);
		return 1;
	}
	const int length = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\n\r\n", words[2]);
	if (length >= (int)sizeof request) {
		fputs("drakit-probe: the path is too long\n", stderr);
		return 1;
	}
	memcpy(address.sun_path, words[1], strlen(words[1]));
	const int driver = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (driver < 0 || setsockopt(driver, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience)
	    || setsockopt(driver, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience)
	    || connect(driver, (struct sockaddr *)&address, sizeof address) || send(driver, request, (size_t)length, MSG_NOSIGNAL) != length)
		return fail(words[1]);
	while (size < ANSWER_MAX) {
		const ssize_t got = recv(driver, answer + size, ANSWER_MAX - size, 0);
		if (got < 0)
			return fail(words[1]);
		if (got == 0)
			break;
		size += (size_t)got;
	}
	answer[size] = 0;
	const char *body = strstr(answer, "\r\n\r\n");
	if (body == NULL || strncmp(answer, "HTTP/1.", strlen("HTTP/1.")) || size < STATUS_AT) {
		fputs("drakit-probe: the answer is not HTTP\n", stderr);
		return 1;
	}
	fputs(body + strlen("\r\n\r\n"), stdout);
	return strncmp(answer + STATUS_AT, "200 ", strlen("200 ")) != 0;
}
