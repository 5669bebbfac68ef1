/* mps_control.c - the simulated nvidia-cuda-mps-control: the daemon (-d, -f), and the program that asks it.
 *
 * As NVIDIA documents the real one: without an option it takes commands on stdin, one on a line; where the daemon
 * and its clients meet is CUDA_MPS_PIPE_DIRECTORY. The daemon starts a server at the first client. What they say to
 * each other on the socket `control` is our own: a client's first line is `client PERCENT`, and it stays; anything
 * else is a command, which is answered. Nothing is simulated of what MPS does to kernels. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS 64
#define LINE 256

struct peer {
	int fd;
	pid_t pid;			/* 0: it has not said who it is */
	unsigned int percent;
};

static struct peer peers[CLIENTS];
static unsigned int npeers, standard = 100;
static pid_t server;
static bool quits;
static FILE *log_file;

static const char *folder(const char *name, const char *fallback)
{
	const char *text = getenv(name);

	return text != NULL && *text != '\0' ? text : fallback;
}

static bool address(struct sockaddr_un *at)
{
	int len = snprintf(at->sun_path, sizeof(at->sun_path), "%s/control",
			   folder("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"));

	at->sun_family = AF_UNIX;
	return len > 0 && (size_t)len < sizeof(at->sun_path);
}

static int to_daemon(void)
{
	struct sockaddr_un at;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && address(&at) && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

__attribute__((format(printf, 1, 2))) static void note(const char *text, ...)
{
	va_list args;

	if (log_file == NULL)
		return;
	va_start(args, text);
	vfprintf(log_file, text, args);
	va_end(args);
	fputc('\n', log_file);
	fflush(log_file);
}

static unsigned int count_clients(void)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < npeers; i++)
		count += peers[i].pid != 0;
	return count;
}

/* The server only has to be there: clients of the simulation compute for themselves. */
static void start_server(void)
{
	if (server != 0)
		return;
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
		for (unsigned int i = 0; i < npeers; i++)
			close(peers[i].fd);
		for (;;)
			pause();
	}
	note("Starting new server %d for user %d", server, (int)getuid());
}

static void become_client(struct peer *peer, const char *percent)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0)
		return;
	peer->pid = who.pid;
	peer->percent = (unsigned int)atoi(percent);
	if (peer->percent > standard)	/* a client can only ask for less */
		peer->percent = standard;
	start_server();
	note("NEW CLIENT %d from user %d: Server ready, asks for %s percent", peer->pid, (int)who.uid, percent);
}

static void list_clients(int fd, bool wide)
{
	for (unsigned int i = 0; i < npeers; i++) {
		if (peers[i].pid == 0)
			continue;
		if (wide)
			dprintf(fd, "%d %u %d\n", peers[i].pid, peers[i].percent, server);
		else
			dprintf(fd, "%d\n", peers[i].pid);
	}
}

static void answer(int fd, char *line)
{
	char *rest, *word = strtok_r(line, " \t", &rest), *one, *two;

	if (word == NULL)
		return;
	one = strtok_r(NULL, " \t", &rest);
	two = strtok_r(NULL, " \t", &rest);
	if (strcmp(word, "get_server_list") == 0 && server != 0)
		dprintf(fd, "%d\n", server);
	else if (strcmp(word, "get_client_list") == 0 && one != NULL && atoi(one) == server)
		list_clients(fd, false);
	else if (strcmp(word, "get_client_list") == 0 && one != NULL)
		dprintf(fd, "Server %d not found\n", atoi(one));
	else if (strcmp(word, "ps") == 0)
		list_clients(fd, true);
	else if (strcmp(word, "get_default_active_thread_percentage") == 0)
		dprintf(fd, "%u.0\n", standard);
	else if (strcmp(word, "set_default_active_thread_percentage") == 0 && one != NULL)
		standard = (unsigned int)atoi(one);
	else if (strcmp(word, "set_active_thread_percentage") == 0 && two != NULL)
		standard = (unsigned int)atoi(two);
	else if (strcmp(word, "quit") == 0)
		quits = true;
	else if (strcmp(word, "get_server_list") != 0 && strcmp(word, "get_client_list") != 0)
		dprintf(fd, "Unknown command \"%s\"\n", word);
}

/* False: it is gone, or was answered. */
static bool hear(struct peer *peer)
{
	char text[LINE];
	ssize_t got = read(peer->fd, text, sizeof(text) - 1);
	char *line, *rest;

	if (got <= 0)
		return got < 0 && errno == EINTR;
	if (peer->pid != 0)
		return true;
	text[got] = '\0';
	line = strtok_r(text, "\n", &rest);
	if (line != NULL && strncmp(line, "client ", 7) == 0) {
		become_client(peer, line + 7);
		return true;
	}
	for (; line != NULL; line = strtok_r(NULL, "\n", &rest))
		answer(peer->fd, line);
	return false;
}

static void take(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (npeers == CLIENTS)
		close(fd);
	else
		peers[npeers++] = (struct peer){ .fd = fd };
}

/* With `quit` the real daemon waits for the clients to end as well. */
static int serve(int listener)
{
	while (!quits || count_clients() != 0) {
		struct pollfd all[CLIENTS + 1] = { { .fd = listener, .events = POLLIN } };
		unsigned int count = npeers;

		for (unsigned int i = 0; i < count; i++)
			all[i + 1] = (struct pollfd){ .fd = peers[i].fd, .events = POLLIN };
		if (poll(all, count + 1, -1) < 0)
			continue;
		for (unsigned int i = count; i-- > 0;) {
			if (all[i + 1].revents == 0 || hear(&peers[i]))
				continue;
			close(peers[i].fd);
			peers[i] = peers[--npeers];
		}
		if (all[0].revents != 0)
			take(listener);
	}
	if (server != 0)
		kill(server, SIGKILL);
	return 0;
}

static int run_daemon(bool background)
{
	struct sockaddr_un at;
	char path[512];
	int fd = to_daemon();

	if (fd >= 0) {
		fprintf(stderr, "An instance of this daemon is already running\n");
		return 1;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	mkdir(folder("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), 0755);
	if (fd < 0 || !address(&at) || (unlink(at.sun_path) != 0 && errno != ENOENT) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || chmod(at.sun_path, 0666) != 0 ||
	    listen(fd, 64) != 0) {
		fprintf(stderr, "Failed to create the control pipe: %s\n", strerror(errno));
		return 1;
	}
	snprintf(path, sizeof(path), "%s/control.log", folder("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"));
	log_file = fopen(path, "ae");
	signal(SIGPIPE, SIG_IGN);
	if (background && daemon(0, 0) != 0)
		return 1;
	note("Starting control daemon");
	return serve(fd);
}

static int ask_daemon(void)
{
	char text[LINE];
	ssize_t got;

	while (fgets(text, sizeof(text), stdin) != NULL) {
		int fd = to_daemon();

		if (fd < 0) {
			printf("Cannot find MPS control daemon process\n");
			return 1;
		}
		if (dprintf(fd, "%s\n", strtok(text, "\n") != NULL ? text : "") > 0)
			while ((got = read(fd, text, sizeof(text))) > 0)
				fwrite(text, 1, (size_t)got, stdout);
		close(fd);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && (strcmp(argv[1], "-d") == 0 || strcmp(argv[1], "-f") == 0))
		return run_daemon(argv[1][1] == 'd');
	if (argc == 1)
		return ask_daemon();
	fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f]\n");
	return 1;
}
